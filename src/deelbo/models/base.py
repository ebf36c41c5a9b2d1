"""The registry of model sources, with the request that a source takes and the model that it gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from deelbo._registry import Registry
from deelbo.data.images import ImageFormat
from deelbo.data.targets import Targets


@dataclass(frozen=True)
class ModelRequest:
    """Request for a network.

    Args:
        spec: The whole specification, such as "timm:resnet50".
        name: The part after the prefix, such as "resnet50".
        kind: Kind of the inputs, "image" or "text".
        targets: What the network shall predict.
        pretrained: Whether to load pretrained weights, or the architecture alone.
        image_size: Height and width of images in pixels; the network's own if None.
        folder: Folder of a run with the configuration and tokenizer of a Hugging Face model, if there is one.
        pooling: How a text's tokens become one vector: "mean", "first", "last", "max", or "own" for the classifier that
            transformers has for the architecture; None for what the model itself says, and "own" if it says nothing.
    """

    spec: str
    name: str
    kind: str
    targets: Targets
    pretrained: bool
    image_size: int | None
    folder: Path | None
    pooling: str | None = None


@dataclass
class LoadedModel:
    """A network from a model source, with what it expects of its inputs.

    Args:
        network: The network, with a new classifier for the targets.
        image: Size and normalisation of images, for a network that takes images.
        tokenizer: Tokenizer, for a network that takes texts.
        files: Objects with `save_pretrained` (configuration, tokenizer) that are needed to make the architecture again.
    """

    network: nn.Module
    image: ImageFormat | None = None
    tokenizer: Any = None
    files: tuple[Any, ...] = ()

    @property
    def kind(self) -> str:
        """Kind of the inputs, "image" or "text"."""
        return "text" if self.image is None else "image"


MODEL_SOURCES: Registry[Callable[[ModelRequest], LoadedModel]] = Registry("model", "deelbo.models")
