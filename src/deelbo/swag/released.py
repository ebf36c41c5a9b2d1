"""The priors released with the paper "Pre-Train Your Loss" (Shwartz-Ziv et al., 2022)."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from deelbo._head import Head, split_head
from deelbo._modules import unwrap
from deelbo.models.weights import read_weights
from deelbo.priors import SourcePosterior

PARTS = ("mean", "variance", "covmat", "model")


def read_released(name: str | Path, model: nn.Module, head: Head = None) -> SourcePosterior:
    """Read NAME_mean.pt [F], NAME_variance.pt [F], NAME_covmat.pt [K, F] and, if it is there, NAME_model.pt.

    They are loaded as data only, never as code. The vectors are in the order of the network's `named_parameters`;
    variances below zero, which come from rounding, become zero. The state dict gives the buffers.

    Args:
        name: The common beginning of the paths, such as folder/resnet50_ssl_prior.
        model: A network of the released architecture.
        head: Name of the classifier; found automatically in most networks if None.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file holds no tensor, or its size is not that of the backbone.
    """
    backbone = {n: p.shape for n, p in split_head(model, head)[0].items()}
    size = sum(shape.numel() for shape in backbone.values())
    vectors = {part: _vector(Path(f"{name}_{part}.pt")) for part in PARTS[:3]}
    if vectors["covmat"].ndim == 2 and vectors["covmat"].shape[0] == size != vectors["covmat"].shape[1]:
        vectors["covmat"] = vectors["covmat"].T  # some files hold Q, others its transpose
    for part, vector in vectors.items():
        if vector.shape[-1] != size or vector.ndim != (2 if part == "covmat" else 1):
            network = type(unwrap(model)).__name__
            raise ValueError(
                f"{name}_{part}.pt is {list(vector.shape)}, but the backbone of {network} has {size} weights"
            )
    buffers = {}
    if Path(f"{name}_model.pt").is_file():
        state = read_weights(Path(f"{name}_model.pt"))
        buffers = {n: state[n] for n, _ in unwrap(model).named_buffers() if n in state}
    sizes = [shape.numel() for shape in backbone.values()]

    def by_name(vector: Tensor) -> dict[str, Tensor]:
        pieces = zip(backbone.items(), vector.split(sizes, -1), strict=True)
        return {n: piece.reshape(*piece.shape[:-1], *shape).clone() for (n, shape), piece in pieces}

    mean, variance, rows = vectors["mean"], vectors["variance"].clamp(min=0), vectors["covmat"]
    notes = {"released": Path(name).name}
    return SourcePosterior(by_name(mean), by_name(variance), by_name(rows), buffers, notes)


def _vector(path: Path) -> Tensor:
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no {path}; a released prior is NAME_mean.pt, NAME_variance.pt, NAME_covmat.pt"
        )
    try:
        value = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # pickle's errors have no common type
        raise ValueError(f"{path} is no tensor that is safe to load: {error}") from error
    if not isinstance(value, Tensor):
        raise ValueError(f"{path} holds a {type(value).__name__}, not a tensor")
    return value.float()
