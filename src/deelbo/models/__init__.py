"""From the name of a model to a network with a classifier for the user's classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from deelbo.data.images import ImageFormat
from deelbo.data.texts import longest
from deelbo.models.factory import from_factory
from deelbo.models.huggingface import from_hugging_face
from deelbo.models.loaded import LoadedModel, Request
from deelbo.models.offline import from_offline
from deelbo.models.timm import from_timm
from deelbo.models.torchvision import from_torchvision
from deelbo.models.weights import fit_weights, read_weights

__all__ = ["LoadedModel", "load_model", "restore_model"]

_SOURCES: dict[str, Callable[[Request], LoadedModel]] = {
    "timm": from_timm,
    "torchvision": from_torchvision,
    "hf": from_hugging_face,
    "offline": from_offline,
}


def load_model(
    spec: str,
    kind: str,
    classes: Sequence[str],
    *,
    weights: str | Path | None = None,
    pretrained: bool = True,
    image_size: int | None = None,
    max_length: int | None = None,
    folder: str | Path | None = None,
) -> LoadedModel:
    """Return a network for the classes, with what it expects of its inputs.

    Args:
        spec: `timm:NAME`, `torchvision:NAME`, `hf:NAME-OR-FOLDER`, `offline:efficientnet_lite0`, `offline:minilm`, or
            `package.module:factory` (called with `num_classes=`).
        kind: Of the data: "image" or "text".
        classes: Names of the labels.
        weights: A safetensors file or state dict for the backbone; a classifier for as many classes is read as well.
        pretrained: False for the architecture alone, of a run whose weights are read afterwards.
        image_size: Instead of the network's own.
        max_length: Tokens of a text at most; None for what the network takes, and at most 512.
        folder: Of a run, where a Hugging Face model's configuration and tokenizer are.

    Raises:
        ValueError: If the model is unknown, cannot be downloaded, or the weights do not fit.
        FileNotFoundError: If there is no file of weights.
    """
    prefix, _, name = spec.partition(":")
    if not prefix or not name:
        choices = ", ".join([f"{source}:NAME" for source in _SOURCES] + ["package.module:factory"])
        raise ValueError(f"unknown model {spec!r}: it is one of {choices}")
    if image_size is not None and image_size < 8:
        raise ValueError(f"--image-size {image_size}: images have at least 8 pixels")
    if weights is not None and not Path(weights).is_file():
        raise FileNotFoundError(f"{weights}: no such file of weights")
    request = Request(
        spec,
        name,
        kind,
        list(classes),
        pretrained and weights is None,
        image_size,
        None if folder is None else Path(folder),
    )
    loaded = _SOURCES.get(prefix, from_factory)(request)
    if loaded.kind != kind:
        raise ValueError(f"{spec} is a network for {loaded.kind}s, but the data are {kind}s")
    loaded.spec, loaded.classes = spec, list(classes)
    if kind == "text":
        loaded.max_length = longest(loaded.tokenizer, loaded.network, max_length)
    if weights is not None:
        fit_weights(loaded.network, read_weights(Path(weights)), str(weights))
    return loaded


def restore_model(stored: dict[str, Any], folder: Path) -> LoadedModel:
    """Make the architecture of a run again.

    Args:
        stored: What `LoadedModel.as_dict` gave.
        folder: With the configuration and tokenizer that `write_files` wrote.
    """
    form = stored.get("image")
    loaded = load_model(
        stored["spec"],
        stored["kind"],
        stored["classes"],
        pretrained=False,
        image_size=form and form["size"],
        folder=folder if folder.is_dir() else None,
    )
    if form:
        loaded.image = ImageFormat(**{**form, "mean": tuple(form["mean"]), "std": tuple(form["std"])})
    loaded.max_length = stored.get("max_length", loaded.max_length)
    return loaded
