"""Networks of the library timm, by name."""

from __future__ import annotations

from deelbo._extras import require
from deelbo._hub import cache_without_network, unavailable, unknown
from deelbo.data.images import ImageFormat
from deelbo.models.base import MODEL_SOURCES, LoadedModel, ModelRequest


@MODEL_SOURCES.register("timm", "image networks of timm, by name")
def from_timm(request: ModelRequest) -> LoadedModel:
    """Return a network of timm, with its own input size and normalisation."""
    timm = require("timm", "vision")
    plain = request.name.split(".")[0]
    if not timm.is_model(plain):
        raise unknown(request.spec, plain, timm.list_models())
    options = {}
    if request.image_size is not None and _fixed_size(request.name):
        options["img_size"] = request.image_size
    try:
        with cache_without_network():
            network = timm.create_model(
                request.name, pretrained=request.pretrained, num_classes=request.targets.num_outputs, **options
            )
    except (OSError, RuntimeError) as error:
        if not request.pretrained:
            raise
        raise unavailable(request.spec, error) from error
    config = timm.data.resolve_data_config({}, model=network)
    channels, height, _ = config["input_size"]
    form = ImageFormat(
        request.image_size or height, tuple(config["mean"]), tuple(config["std"]), config["interpolation"], channels
    )
    return LoadedModel(network, form)


def _fixed_size(name: str) -> bool:
    config = require("timm.models", "vision").get_pretrained_cfg(name)
    return bool(config is not None and config.fixed_input_size)
