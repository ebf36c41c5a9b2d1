"""Networks made by a function of the user's own."""

from __future__ import annotations

import importlib
import sys

from torch import nn

from deelbo.data.images import ImageFormat
from deelbo.models.base import LoadedModel, ModelRequest


def from_factory(request: ModelRequest) -> LoadedModel:
    """Call `package.module:factory(num_classes=...)`.

    The network may have the attribute `tokenizer` (then it is for texts), or `pretrained_cfg` with "input_size", "mean"
    and "std", as in timm. Without them, images are 224 pixels wide and normalised by the training set.

    Raises:
        ValueError: If there is no such function, or it does not return a network.
    """
    if request.pooling is not None:
        raise ValueError(f"pooling={request.pooling!r}: {request.spec} makes its network itself, with its own pooling")
    module, _, name = request.spec.partition(":")
    if "" not in sys.path:  # so that modules in the current folder are found, as with `python -m`
        sys.path.insert(0, "")
    try:
        factory = getattr(importlib.import_module(module), name)
    except (ModuleNotFoundError, AttributeError) as error:
        raise ValueError(f"unknown model {request.spec!r}: {error}") from error
    network = factory(num_classes=request.targets.num_outputs)
    if not isinstance(network, nn.Module):
        raise ValueError(f"{request.spec} gave a {type(network).__name__} instead of a torch.nn.Module")
    if (tokenizer := getattr(network, "tokenizer", None)) is not None:
        return LoadedModel(network, tokenizer=tokenizer)
    if request.kind == "text":
        raise ValueError(f"{request.spec} is for texts, so its network needs an attribute `tokenizer`")
    config = getattr(network, "pretrained_cfg", None) or {}
    channels, size, _ = config.get("input_size", (3, 224, 224))
    mean, std = (tuple(config[key]) if key in config else None for key in ("mean", "std"))
    return LoadedModel(network, ImageFormat(request.image_size or size, mean, std, channels=channels))
