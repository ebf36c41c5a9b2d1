"""Reading weights from files, and changing a classifier: replacing it, or folding units into it."""

from __future__ import annotations

from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor, nn

from deelbo._head import find_head
from deelbo._modules import select
from deelbo._wording import some_of


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file, or a state dict saved by PyTorch (as data only, never as code).

    Raises:
        ValueError: If the file is neither.
    """
    try:
        if path.suffix == ".safetensors":
            return safetensors.torch.load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # pickle's errors have no common type
        raise ValueError(f"{path} is no safetensors file and no state dict that is safe to load: {error}") from error
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise ValueError(f"{path} is no state dict")
    return {name.removeprefix("module."): value for name, value in state.items()}


def fit_weights(network: nn.Module, weights: dict[str, Tensor], where: str) -> None:
    """Load weights into a network; a classifier of another size is left as it is.

    Args:
        network: The network, with its new classifier.
        weights: Weights of the same architecture, by name.
        where: Path of the weights, for the error message.

    Raises:
        ValueError: If a key is missing, left over or of another shape.
    """
    needed = network.state_dict()
    head = set(select(list(needed), find_head(network)))
    changed = any(name not in weights or weights[name].shape != needed[name].shape for name in head)
    left = head if changed else set()
    missing = sorted(set(needed) - set(weights) - left)
    surplus = sorted(set(weights) - set(needed))
    if changed:  # the old classifier may have had other names than the new one
        surplus = [name for name in surplus if not select([name], find_head(network))]
    shapes = [
        f"{n} {list(weights[n].shape)} instead of {list(needed[n].shape)}"
        for n in needed
        if n in weights and n not in left and weights[n].shape != needed[n].shape
    ]
    problems = [
        f"{what} {some_of(names)}"
        for what, names in (("missing", missing), ("unknown", surplus), ("other shape", shapes))
        if names
    ]
    if problems:
        raise ValueError(f"{where} does not fit {type(network).__name__}: {'; '.join(problems)}")
    network.load_state_dict({name: weights[name] for name in needed if name not in left}, strict=False)


def replace_head(network: nn.Module, num_classes: int) -> None:
    """Put a new classifier of the same kind in place of the old one.

    Raises:
        ValueError: If the classifier is neither linear nor a convolution.
    """
    name = find_head(network)[0]
    owner = network.get_submodule(name.rpartition(".")[0])
    old = network.get_submodule(name)
    if isinstance(old, nn.Linear):
        new: nn.Module = nn.Linear(old.in_features, num_classes, old.bias is not None)
    elif isinstance(old, nn.Conv2d):  # SqueezeNet
        new = nn.Conv2d(old.in_channels, num_classes, old.kernel_size, bias=old.bias is not None)  # type: ignore[arg-type]
    else:
        raise ValueError(f"the classifier {name} of {type(network).__name__} is a {type(old).__name__}, not linear")
    setattr(owner, name.rpartition(".")[2], new)


def fold_units(network: nn.Module, location: Tensor, spread: Tensor) -> bool:
    """Change the last layer so that the network gives location + spread * output.

    Args:
        network: The network, changed in place.
        location: Number to add to each output.
        spread: Number to multiply each output with.

    Returns:
        Whether that was done: not if the classifier is not one linear layer with a bias, or cannot be found.
    """
    try:
        parts = find_head(network)
    except ValueError:  # the user said which it is when the network was trained
        return False
    last = network.get_submodule(parts[0])
    if len(parts) > 1 or not isinstance(last, nn.Linear) or last.bias is None or last.out_features != len(location):
        return False
    with torch.no_grad():
        weight, bias = last.weight.double(), last.bias.double()
        last.weight.copy_(spread.to(weight)[:, None] * weight)
        last.bias.copy_(spread.to(bias) * bias + location.to(bias))
    return True
