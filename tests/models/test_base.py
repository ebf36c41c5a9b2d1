"""What a model source gives."""

from torch import nn

from deelbo.data.images import ImageFormat
from deelbo.models import MODEL_SOURCES, LoadedModel, load_model
from shared.models import CLASSES


def test_the_kind_of_the_inputs():
    assert LoadedModel(nn.Linear(1, 1), ImageFormat(32)).kind == "image"
    assert LoadedModel(nn.Linear(1, 1), tokenizer=len).kind == "text"


def test_a_source_of_ones_own_is_one_registration():
    asked = []

    @MODEL_SOURCES.register("mine", "my own")
    def source(request):
        asked.append(request)
        return LoadedModel(nn.Linear(4, request.targets.num_outputs), ImageFormat(request.image_size or 99))

    try:
        network, reader = load_model("mine:little:one", "image", CLASSES, image_size=40)
    finally:
        del MODEL_SOURCES._entries["mine"], MODEL_SOURCES._summaries["mine"]
    assert network.out_features == 3
    assert (reader.spec, reader.image.size) == ("mine:little:one", 40)
    (request,) = asked
    assert (request.spec, request.name, request.kind, request.pretrained) == (
        "mine:little:one",
        "little:one",
        "image",
        True,
    )
