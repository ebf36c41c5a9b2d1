import re
from pathlib import Path

import pytest
import torch

BLOCKS = re.findall(r"```python\n(.*?)```", (Path(__file__).parents[1] / "README.md").read_text(), re.DOTALL)


def test_examples_learn_and_agree():
    """The explicit example and the attached one do the same."""
    names, learned = {}, []
    for block in BLOCKS[:2]:  # the third, `finetune`, is tested in test_finetuning.py
        torch.manual_seed(0)
        exec(block, names)
        learned.append(names["prior"].variances)
    assert all(1e-3 < value < 1 for value in learned[0].values())
    assert learned[0] == pytest.approx(learned[1], rel=1e-6)
    x_test, y_test = names["x_test"], names["y_test"]
    assert (names["model"](x_test / 16).argmax(1) == y_test).double().mean() > 0.9
