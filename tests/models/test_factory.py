"""Networks that a user's own function makes."""

import pytest

from deelbo.models import load_model
from shared.models import CLASSES, logits


def test_factory():
    network, reader = load_model("shared.pictures:small", "image", CLASSES)
    assert reader.image.mean is None
    assert logits(network).shape == (2, 3)


@pytest.mark.parametrize(
    ("spec", "kind", "message"),
    [
        ("no_such_module:factory", "image", "No module named 'no_such_module'"),
        ("shared.pictures:no_such", "image", "no_such"),
        ("shared.pictures:no_network", "image", "gave a str instead of a torch.nn.Module"),
        ("shared.pictures:small", "text", "needs an attribute `tokenizer`"),
    ],
)
def test_wrong_factories(spec, kind, message):
    with pytest.raises(ValueError, match=message):
        load_model(spec, kind, CLASSES)
