"""Helpers for networks: unwrapping, trainable parameters by name, checks of parameters, and eval mode."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import nn

from deelbo import _shards
from deelbo._weight_passes import flat


def unwrap(model: nn.Module) -> nn.Module:
    """Return the bare network inside `torch.compile` and data-parallel wrappers."""
    while True:
        if isinstance(model, (nn.parallel.DistributedDataParallel, nn.DataParallel)):
            model = model.module
        elif isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):  # the wrapper of torch.compile
            model = inner
        else:
            return model


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Put a network into eval mode inside the block, and each of its modules back into its own mode after it."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


def trainable(model: nn.Module, bfloat16: bool = False) -> dict[str, nn.Parameter]:
    """Return the parameters with `requires_grad` by name; a tied weight appears once.

    Args:
        model: Any module, bare or wrapped.
        bfloat16: Whether weights in bfloat16 are welcome, because their means are kept in float32.

    Raises:
        ValueError: If no parameter is trainable, or one of them cannot carry Gaussian noise.
    """
    model = unwrap(model)
    _shards.reshard(model)  # or some parameters would be those that FSDP has gathered for its last forward pass
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not parameters:
        raise ValueError(
            f"{type(model).__name__} has no parameter with requires_grad=True, so there is nothing to learn"
        )
    for name, parameter in parameters.items():
        check(name, parameter, bfloat16)
    return parameters


def check(name: str, parameter: nn.Parameter, bfloat16: bool = False) -> None:
    """Refuse a parameter that cannot carry Gaussian noise.

    Args:
        name: Name of the parameter.
        parameter: The parameter.
        bfloat16: Whether it may be bfloat16.

    Raises:
        ValueError: If the parameter is lazy, sharded or of low precision; the message names it and the remedy.
    """
    if isinstance(parameter, nn.parameter.UninitializedParameter):
        raise ValueError(f'parameter "{name}" has no shape yet: run one batch through the lazy module first')
    if _shards.is_sharded(parameter):
        _shards.check(name, parameter)
    if hasattr(parameter, "ds_id"):
        raise ValueError(
            f'parameter "{name}" is sharded (DeepSpeed ZeRO-3), which is not supported: train with DDP, or shard the '
            "network with fully_shard (FSDP2)"
        )
    if bfloat16 and parameter.dtype == torch.float16:
        raise ValueError(
            f'parameter "{name}" is float16, in which small gradients become zero: use model.bfloat16(), or keep the '
            "weights in float32 (model.float()) and compute under torch.autocast with a GradScaler"
        )
    good = (torch.float32, torch.float64, torch.complex64, torch.complex128, *([torch.bfloat16] if bfloat16 else []))
    if parameter.dtype not in good:
        raise ValueError(
            f'parameter "{name}" is {str(parameter.dtype).removeprefix("torch.")}, whose rounding swallows noise of '
            "scale 1e-4: keep the weights in float32 (model.float()) and compute under torch.autocast instead"
        )


def check_replicated(model: nn.Module) -> None:
    """Refuse a network that is wrapped by the first version of FSDP, which flattens and replaces the weights.

    Raises:
        ValueError: If a module of it is.
    """
    for name, module in model.named_modules():
        if type(module).__name__ == "FullyShardedDataParallel":
            place = f'module "{name}"' if name else "the network"
            raise ValueError(
                f"{place} is sharded by FullyShardedDataParallel (FSDP1), which is not supported: train with DDP, or "
                "shard the network with fully_shard (FSDP2)"
            )


def check_memory(parameters: Mapping[str, nn.Parameter]) -> None:
    """Refuse weights that share memory or have gaps in it, and so could not be changed in place.

    Raises:
        ValueError: If a weight is such a one; the message names it.
    """
    ends: list[tuple[int, int, str]] = []
    for name, parameter in parameters.items():
        try:
            flat(parameter)
        except ValueError as error:
            raise ValueError(f'parameter "{name}": {error}') from None
        part = _shards.local(parameter)
        if part.device.type != "meta" and part.numel():
            start = part.data_ptr()
            ends.append((start, start + part.numel() * part.element_size(), name))
    ends.sort()
    for (_, end, name), (start, _, other) in itertools.pairwise(ends):
        if start < end:
            raise ValueError(
                f'parameters "{name}" and "{other}" share memory without being one parameter; '
                "tie them by assigning the same nn.Parameter to both modules"
            )


def select(names: Iterable[str], prefixes: Iterable[str]) -> list[str]:
    """Return the names equal to one of the prefixes or below it in the module tree, in order."""
    prefixes = list(prefixes)
    return [n for n in names if any(n == prefix or n.startswith(f"{prefix}.") for prefix in prefixes)]
