"""Networks of the library torchvision, by name, with one of its sets of weights (NAME@WEIGHTS)."""

from __future__ import annotations

from deelbo._extras import require
from deelbo._hub import unavailable, unknown
from deelbo.data.images import ImageFormat
from deelbo.models.base import MODEL_SOURCES, LoadedModel, ModelRequest
from deelbo.models.weights import replace_head


@MODEL_SOURCES.register("torchvision", "image networks of torchvision, by name or NAME@WEIGHTS")
def from_torchvision(request: ModelRequest) -> LoadedModel:
    """Return a network of torchvision, with its own input size and normalisation.

    `resnet50@IMAGENET1K_V1` takes the weights of this name; without one, those that torchvision calls its best.
    """
    models = require("torchvision.models", "vision")
    known = models.list_models(module=models)
    name, _, version = request.name.partition("@")
    if name not in known:
        raise unknown(request.spec, name, known)
    versions = models.get_model_weights(name)
    if version and version not in versions.__members__:
        raise ValueError(
            f"{name} has no weights {version!r} in torchvision; there are {', '.join(versions.__members__)}"
        )
    weights = versions[version] if version else versions.DEFAULT
    options = {"image_size": request.image_size} if request.image_size and name.startswith("vit_") else {}
    try:
        network = models.get_model(name, weights=weights if request.pretrained else None, **options)
    except OSError as error:
        raise unavailable(request.spec, error) from error
    replace_head(network, request.targets.num_outputs)
    preset = weights.transforms()
    size = request.image_size or preset.crop_size[0]
    return LoadedModel(network, ImageFormat(size, tuple(preset.mean), tuple(preset.std), preset.interpolation.value))
