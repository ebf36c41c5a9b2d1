"""The plain network of a run in a folder of its own, for use without deelbo."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from deelbo._extras import require
from deelbo._files import write_json, write_tensors
from deelbo.likelihoods import Likelihood
from deelbo.models import InputReader
from deelbo.models.weights import fold_units
from deelbo.training.batches import fetch, network_output


def write_network(
    path: Path, network: nn.Module, likelihood: Likelihood, reader: InputReader | None, temperature: float
) -> None:
    """Write a network by its own `save_pretrained`, or as a safetensors state dict, with `model.json` about it.

    Args:
        path: New or empty folder.
        network: The trained network, which stays as it is.
        likelihood: Likelihood of its outputs, with the targets' units.
        reader: Reader of its inputs, if it has one.
        temperature: Temperature that logits are divided by.
    """
    about = reader.as_dict() if reader else None
    if (units := _units(likelihood, temperature)) is not None:
        network = copy.deepcopy(network)
        if not fold_units(network, *units, _call_on_examples(network, reader)):
            classes = likelihood.scale_free
            warnings.warn(
                f"the outputs of the network in {path} are "
                + ("not calibrated" if classes else "standardised")
                + ": multiply them with std and add mean, which model.json has under units, to get "
                + ("calibrated logits" if classes else "the targets' units"),
                stacklevel=3,
            )
            about = {**(about or {}), "units": {"mean": units[0].tolist(), "std": units[1].tolist()}}
    if callable(save := getattr(network, "save_pretrained", None)):
        save(path)
        for file in reader.files if reader else ():
            file.save_pretrained(path)
    else:
        write_tensors(path / "model.safetensors", dict(network.state_dict()))
    if about is not None:
        write_json(path / "model.json", about)


def _units(likelihood: Likelihood, temperature: float) -> tuple[Tensor, Tensor] | None:
    """Return what is added to outputs, and what they are multiplied with, for use without deelbo."""
    if not likelihood.scale_free or temperature == 1:
        return likelihood.units()
    return torch.zeros(1, dtype=torch.float64), torch.tensor([1 / temperature], dtype=torch.float64)


def _call_on_examples(network: nn.Module, reader: InputReader | None) -> Callable[[nn.Module], Tensor] | None:
    """Return what calls a network on two inputs of our own; None if it is not known what inputs are."""
    if reader is None:
        return None
    inputs: list[Any] = ["a", "some other text"]
    if reader.image is not None:
        image = require("PIL.Image", "vision")
        inputs = [image.new("RGB", (reader.image.size,) * 2, colour) for colour in ("black", "orange")]
    batch, _ = fetch(reader.unlabelled(inputs), (0, 1), next(network.parameters()).device)
    return lambda network: network_output(network, batch)
