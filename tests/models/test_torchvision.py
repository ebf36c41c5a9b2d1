"""Networks of torchvision, without their weights."""

import pytest
import torch
import torchvision

from deelbo._head import find_head
from deelbo.models import load_model
from deelbo.models.weights import replace_head
from shared.models import CLASSES, logits


@pytest.mark.parametrize("name", ["alexnet", "squeezenet1_0", "mobilenet_v3_small", "vit_b_32", "convnext_tiny"])
def test_heads_of_torchvision_are_replaced(name):
    with torch.device("meta"):
        network = torchvision.models.get_model(name)
        replace_head(network, 7)
    owner = network.get_submodule(find_head(network)[0])
    assert owner.weight.shape[0] == 7


def test_architecture_and_input_of_its_own():
    network, reader = load_model("torchvision:resnet18", "image", CLASSES, pretrained=False)
    assert (reader.image.size, reader.image.mean) == (224, pytest.approx((0.485, 0.456, 0.406)))
    assert len(reader.image.std) == 3
    assert logits(network, 224).shape == (2, 3)


def test_unknown_names_come_with_the_nearest():
    with pytest.raises(ValueError, match="there are resnet18"):
        load_model("torchvision:resnet19", "image", CLASSES)
