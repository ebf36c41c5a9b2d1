"""Networks of timm, without their weights."""

import pytest

from deelbo.models import load_model
from shared.models import CLASSES, logits


def test_image_size_can_be_chosen():
    assert logits(load_model("timm:resnet10t", "image", CLASSES, pretrained=False, image_size=40)[0], 40).shape == (
        2,
        3,
    )
    fixed, reader = load_model("timm:vit_tiny_patch16_224", "image", CLASSES, pretrained=False, image_size=64)
    assert logits(fixed, 64).shape == (2, 3)
    assert reader.image.size == 64


@pytest.mark.parametrize(
    ("spec", "size", "mean"),
    [("timm:resnet10t", 176, (0.485, 0.456, 0.406)), ("timm:vit_tiny_patch16_224", 224, (0.5, 0.5, 0.5))],
)
def test_architecture_and_input_of_its_own(spec, size, mean):
    network, reader = load_model(spec, "image", CLASSES, pretrained=False)
    assert (reader.image.size, reader.image.mean) == (size, pytest.approx(mean))
    assert len(reader.image.std) == 3
    assert logits(network, size).shape == (2, 3)


def test_unknown_names_come_with_the_nearest():
    with pytest.raises(ValueError, match="unknown model 'timm:resnet5'; there are resnet50"):
        load_model("timm:resnet5", "image", CLASSES)
