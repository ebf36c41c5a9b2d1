"""Networks of the library torchvision, by name."""

from __future__ import annotations

from deelbo._extras import require
from deelbo._hub import unavailable, unknown
from deelbo.data.images import ImageFormat
from deelbo.models.base import MODEL_SOURCES, LoadedModel, ModelRequest
from deelbo.models.weights import replace_head


@MODEL_SOURCES.register("torchvision", "image networks of torchvision, by name")
def from_torchvision(request: ModelRequest) -> LoadedModel:
    """Return a network of torchvision, with its own input size and normalisation."""
    models = require("torchvision.models", "vision")
    known = models.list_models(module=models)
    if request.name not in known:
        raise unknown(request.spec, request.name, known)
    best = models.get_model_weights(request.name).DEFAULT
    options = {"image_size": request.image_size} if request.image_size and request.name.startswith("vit_") else {}
    try:
        network = models.get_model(request.name, weights=best if request.pretrained else None, **options)
    except OSError as error:
        raise unavailable(request.spec, error) from error
    replace_head(network, request.targets.num_outputs)
    preset = best.transforms()
    size = request.image_size or preset.crop_size[0]
    return LoadedModel(network, ImageFormat(size, tuple(preset.mean), tuple(preset.std), preset.interpolation.value))
