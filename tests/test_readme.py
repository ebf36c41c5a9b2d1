import re
from pathlib import Path

import pytest
import torch

import deelbo

BLOCKS = re.findall(r"```python\n(.*?)```", (Path(__file__).parents[1] / "README.md").read_text(), re.DOTALL)


def test_examples_learn_and_agree():
    """The explicit example and the attached one do the same."""
    names, learned = {}, []
    for block in BLOCKS[1:]:
        torch.manual_seed(0)
        exec(block, names)
        learned.append(names["prior"].variances)
    assert all(1e-3 < value < 1 for value in learned[0].values())
    assert learned[0] == pytest.approx(learned[1], rel=1e-6)
    x_test, y_test = names["x_test"], names["y_test"]
    assert (names["model"](x_test / 16).argmax(1) == y_test).double().mean() > 0.9


def test_three_lines():
    x, y = torch.randn(40, 5), torch.randint(3, (40,))
    data = torch.utils.data.TensorDataset(x, y)
    network = torch.nn.Sequential()
    network.body, network.head = torch.nn.Linear(5, 8), torch.nn.Linear(8, 3)
    names = {"deelbo": deelbo, "model": network, "train_set": data, "test_set": data}
    exec(BLOCKS[0].replace("steps=6000", "steps=5"), names)
    assert names["result"].settings.steps == 5
