"""Reading weights from files, and changing a classifier: replacing it, or folding units into it."""

from __future__ import annotations

from collections.abc import Callable
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


def fold_units(
    network: nn.Module, location: Tensor, spread: Tensor, call: Callable[[nn.Module], Tensor] | None = None
) -> bool:
    """Change the last layer so that the network gives location + spread * output.

    It is done only where it is certain to be right: where the outputs for some inputs become what they should be, or
    where the network is a sequence that ends with a linear layer.

    Args:
        network: The network in eval mode, changed in place.
        location: What is added to each output; one number, or one for each output.
        spread: What each output is multiplied with; as many numbers.
        call: Returns a network's outputs for some inputs; None if no inputs are known.

    Returns:
        Whether it was done; if not, the network is as before.
    """
    last, before = _last_linear(network, call)
    if last is None or len(location) not in (1, last.out_features) or (last.bias is None and bool(location.any())):
        return False
    weight, bias = last.weight.detach().clone(), None if last.bias is None else last.bias.detach().clone()
    location, spread = location.to(weight.device), spread.to(weight.device)
    with torch.no_grad():
        last.weight.copy_(spread[:, None] * weight.double())
        error = (last.weight.double() - spread[:, None] * weight.double()).abs().amax(1)  # of a weight that is computed
        if bias is not None:
            last.bias.copy_(spread * bias.double() + location)
            error = error.maximum((last.bias.double() - location - spread * bias.double()).abs())
        if call is not None and before is not None:
            wanted = location + spread * before.double().reshape(len(before), -1)
            error = (call(network).double().reshape(len(before), -1) - wanted).abs()
        if bool((error <= 0.01 * spread).all()):
            return True
        last.weight.copy_(weight)  # another layer follows, or float32 has too few digits for the location
        if bias is not None:
            last.bias.copy_(bias)
    return False


def _last_linear(
    network: nn.Module, call: Callable[[nn.Module], Tensor] | None
) -> tuple[nn.Linear | None, Tensor | None]:
    """Return the linear layer that a network calls last, and the network's outputs where they are known."""
    if call is None:
        last = network[-1] if isinstance(network, nn.Sequential) and len(network) else None
        return (last if isinstance(last, nn.Linear) else None), None
    called: list[nn.Linear] = []
    layers = [module for module in network.modules() if isinstance(module, nn.Linear)]
    hooks = [layer.register_forward_hook(lambda module, *rest: called.append(module)) for layer in layers]
    try:
        with torch.no_grad():
            outputs = call(network)
    finally:
        for hook in hooks:
            hook.remove()
    return (called[-1] if called else None), outputs
