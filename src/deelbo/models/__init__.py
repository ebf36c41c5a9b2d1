"""Loading a network by the name of a model, with a new classifier for the user's targets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from deelbo.data.images import NORMALIZATIONS, RESIZES, ImageFormat
from deelbo.data.targets import Targets
from deelbo.data.texts import longest
from deelbo.models.base import MODEL_SOURCES, LoadedModel, ModelRequest
from deelbo.models.factory import from_factory
from deelbo.models.reader import InputReader
from deelbo.models.sentences import OWN, POOLINGS, SentenceClassifier, renamed
from deelbo.models.weights import fit_weights, read_weights

__all__ = ["MODEL_SOURCES", "InputReader", "LoadedModel", "ModelRequest", "load_model", "restore_model"]


def load_model(
    spec: str,
    kind: str,
    targets: Targets,
    *,
    weights: str | Path | None = None,
    pretrained: bool = True,
    image_size: int | None = None,
    max_length: int | None = None,
    pooling: str | None = None,
    resize: str = "shorter-side",
    normalize: str = "network",
    folder: str | Path | None = None,
) -> tuple[nn.Module, InputReader]:
    """Return a network for the targets, and the reader of its inputs.

    Args:
        spec: `timm:NAME`, `torchvision:NAME`, `hf:NAME-OR-FOLDER`, `offline:efficientnet_lite0`, `offline:minilm`, or
            `package.module:factory` (called with `num_classes=`).
        kind: Kind of the inputs, "image" or "text".
        targets: What the network shall predict.
        weights: A safetensors file or state dict for the backbone; its classifier is read too if its size fits.
        pretrained: Whether to load pretrained weights; False for the architecture alone, whose weights come later.
        image_size: Height and width of images in pixels; the network's own if None.
        max_length: Number of tokens of a text at most; None for what the network takes, and at most 512.
        pooling: How a text's tokens become one vector (Hugging Face models); see `ModelRequest`.
        resize: How images are resized before cropping: "shorter-side" keeps their shape, "square" squashes them.
        normalize: Whose mean and standard deviation images get: "network" (the training set's, if the network has none)
            or "training-set".
        folder: Folder of a run with the configuration and tokenizer of a Hugging Face model.

    Raises:
        ValueError: If the model is unknown, cannot be downloaded, or the weights do not fit.
        FileNotFoundError: If there is no file of weights.
    """
    prefix, _, name = spec.partition(":")
    if not prefix or not name:
        sources = ", ".join([*(f"{source}:NAME" for source in MODEL_SOURCES), "package.module:factory"])
        raise ValueError(f"unknown model {spec!r}: it is one of {sources}, such as timm:{name or prefix or 'resnet50'}")
    if image_size is not None and image_size < 8:
        raise ValueError(f"image_size={image_size}: images have at least 8 pixels")
    if pooling is not None and pooling not in (*POOLINGS, OWN):
        raise ValueError(f"pooling={pooling!r}, but it is one of {', '.join([*POOLINGS, OWN])}")
    if pooling is not None and kind != "text":
        raise ValueError(f"pooling={pooling!r} is for texts, but the data are {kind}s")
    for option, value, choices in (("resize", resize, RESIZES), ("normalize", normalize, NORMALIZATIONS)):
        if value not in choices:
            raise ValueError(f"{option}={value!r}, but it is one of {', '.join(choices)}")
        if value != choices[0] and kind != "image":
            raise ValueError(f"{option}={value!r} is for images, but the data are {kind}s")
    if weights is not None and not Path(weights).is_file():
        raise FileNotFoundError(f"{weights}: no such file of weights")
    request = ModelRequest(
        spec=spec,
        name=name,
        kind=kind,
        targets=targets,
        pretrained=pretrained and weights is None,
        image_size=image_size,
        folder=None if folder is None else Path(folder),
        pooling=pooling,
    )
    loaded = MODEL_SOURCES.get(prefix, from_factory)(request)
    if loaded.kind != kind:
        raise ValueError(f"{spec} is a network for {loaded.kind}s, but the data are {kind}s")
    if loaded.image is not None:
        loaded.image = replace(loaded.image, square=resize == "square")
        if normalize == "training-set":
            loaded.image = replace(loaded.image, mean=None, std=None)  # until the training set is read
    if kind == "image":  # convolutions on the CPU are almost twice as fast in this layout
        loaded.network.to(memory_format=torch.channels_last)
    if weights is not None:
        state = read_weights(Path(weights))
        if isinstance(loaded.network, SentenceClassifier):
            state = renamed(loaded.network, state)
        fit_weights(loaded.network, state, str(weights))
    reader = InputReader(spec, kind, targets, loaded.image, loaded.tokenizer, files=loaded.files)
    if kind == "text":
        reader.max_length = longest(loaded.tokenizer, loaded.network, max_length)
        if isinstance(loaded.network, SentenceClassifier):
            loaded.network.max_length = reader.max_length
    return loaded.network, reader


def restore_model(stored: dict[str, Any], folder: Path) -> tuple[nn.Module, InputReader]:
    """Return the network of a finished run, without its weights, and the reader of its inputs.

    Args:
        stored: Plain values that `InputReader.as_dict` returned.
        folder: Folder with the configuration and tokenizer that `InputReader.write_files` wrote.
    """
    image = stored.get("image")
    network, reader = load_model(
        stored["spec"],
        stored["kind"],
        Targets(**stored["targets"]),
        pretrained=False,
        image_size=image and image["size"],
        folder=folder if folder.is_dir() else None,
    )
    if image:
        reader.image = ImageFormat(**{**image, "mean": tuple(image["mean"]), "std": tuple(image["std"])})
    reader.max_length = stored.get("max_length", reader.max_length)
    if isinstance(network, SentenceClassifier):
        network.max_length = reader.max_length
    return network, reader
