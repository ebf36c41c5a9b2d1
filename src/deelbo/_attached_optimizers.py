"""What an optimizer must be like to be attached, and where the posterior's scale has its place in it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

# Optimizers that update the weights during the backward pass, when they hold a draw and the KL's gradient is not there.
TOO_EARLY = ("lomo", "layerwise")


def bare_optimizer(optimizer: Any) -> Any:
    """Return the optimizer inside the wrappers of accelerate, Lightning and fastai."""
    while not _is_deepspeed(optimizer):  # which is no wrapper to look into
        inner = getattr(optimizer, "optimizer", None) or getattr(optimizer, "opt", None)
        if not isinstance(inner, torch.optim.Optimizer) and not _is_deepspeed(inner):
            break
        optimizer = inner
    return optimizer


def check_optimizer(optimizer: Any, means: Mapping[str, nn.Parameter]) -> None:
    """Refuse an optimizer whose step the gradient of the KL cannot join, and warn of weight decay.

    Args:
        optimizer: The optimizer, without wrappers.
        means: The weights of the posterior by name.

    Raises:
        ValueError: If the optimizer cannot be attached; the message names it and says what to do instead.
    """
    name = type(optimizer).__name__
    if _is_deepspeed(optimizer):
        raise ValueError(f"{name} of DeepSpeed keeps weights and gradients in parts of its own: train with DDP instead")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ValueError(
            f"{name} of {type(optimizer).__module__} is no torch.optim.Optimizer, so it has no hooks: use one of "
            "PyTorch, such as torch.optim.AdamW (in fastai by OptimWrapper)"
        )
    in_backward = any(hasattr(p, "_in_backward_optimizers") for p in means.values())
    if in_backward or any(word in name.lower() for word in TOO_EARLY):
        raise ValueError(
            f"{'the optimizer' if in_backward else name} updates the weights during the backward pass, before the "
            "gradient of the KL can join: use an optimizer whose step() comes after it, such as torch.optim.AdamW"
        )
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError(
            "LBFGS calls its closure several times a step: attach an optimizer without closures, such as SGD"
        )
    if not getattr(type(optimizer).step, "hooked", False):
        raise ValueError(
            f"{name}.step() calls no hooks, so the gradient of the KL could not join: attach the optimizer inside it "
            "(timm's Lookahead has it as _base_optimizer), or one of PyTorch, such as torch.optim.AdamW"
        )
    if any(group.get("capturable") for group in optimizer.param_groups):
        raise ValueError(
            f"{name} has capturable=True, for steps in a CUDA graph, which replays them without the learned variances: "
            "make it with capturable=False, and capture no graph of optimizer.step()"
        )
    _check_weights(optimizer, means)


def _check_weights(optimizer: torch.optim.Optimizer, means: Mapping[str, nn.Parameter]) -> None:
    groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    missing = [name for name, p in means.items() if id(p) not in groups]
    if missing:
        raise ValueError(
            f'the optimizer lacks {len(missing)} weights of the posterior, such as "{missing[0]}": '
            "pass it all trainable parameters, or freeze these before making the posterior"
        )
    if any(groups[id(p)].get("weight_decay") for p in means.values()):
        warnings.warn(
            "the optimizer's weight decay regularises the weights in addition to the learned prior: set weight_decay=0",
            stacklevel=5,
        )


def join(optimizer: torch.optim.Optimizer, scales: Sequence[nn.Parameter], alone: bool) -> list[nn.Parameter]:
    """Add the scale to the optimizer, without weight decay, which would pull it towards softplus(0) = 0.69.

    Args:
        optimizer: The optimizer.
        scales: Parameters of the unconstrained scale.
        alone: Whether the scale gets a group of its own where learning rates differ, with the largest of them.

    Returns:
        The parameters that were not in the optimizer before.
    """
    present = {id(p) for group in optimizer.param_groups for p in group["params"]}
    added = [p for p in scales if id(p) not in present]
    if not added:
        return []
    names = [f"posterior.raw_scale.{i}" for i in range(len(added))]
    group = next((g for g in optimizer.param_groups if not g.get("weight_decay")), None)
    fastest = max(optimizer.param_groups, key=_rate)
    several = any(_rate(g) != _rate(fastest) for g in optimizer.param_groups)
    if group is None or (several and alone):
        group = {**fastest, "params": list(added), "weight_decay": 0.0}
        if "param_names" in group:
            group["param_names"] = names
        optimizer.param_groups.append(group)
        return added
    group["params"].extend(added)
    if "param_names" in group:
        group["param_names"].extend(names)
    return added


def leave(optimizer: torch.optim.Optimizer, added: Sequence[nn.Parameter]) -> None:
    """Take the parameters that `join` added out of the optimizer again, with their state."""
    gone = {id(p) for p in added}
    for group in list(optimizer.param_groups):
        rest = [i for i, p in enumerate(group["params"]) if id(p) not in gone]
        if len(rest) == len(group["params"]):
            continue
        if not rest:  # a group that was made for the scale
            optimizer.param_groups.remove(group)
        for key in ("params", "param_names"):
            if key in group:
                group[key] = [group[key][i] for i in rest]
    for parameter in added:
        optimizer.state.pop(parameter, None)


def lift(
    optimizer: torch.optim.Optimizer, old: Sequence[nn.Parameter], new: Sequence[nn.Parameter]
) -> list[tuple[nn.Parameter, nn.Parameter]]:
    """Put parameters in the place of others of the same shapes but another dtype, with what is known of them.

    Args:
        optimizer: The optimizer.
        old: Parameters that it may have, such as bfloat16 weights.
        new: Parameters to have instead, such as their masters.

    Returns:
        The pairs of both that were exchanged.
    """
    present = {id(p) for group in optimizer.param_groups for p in group["params"]}
    pairs = [(p, q) for p, q in zip(old, new, strict=True) if id(p) in present]
    others = {id(p): q for p, q in pairs}
    for group in optimizer.param_groups:
        group["params"][:] = [others.get(id(p), p) for p in group["params"]]
    for parameter, other in pairs:
        if parameter in optimizer.state:
            state = optimizer.state.pop(parameter)
            optimizer.state[other] = {
                name: value.to(other.dtype) if isinstance(value, Tensor) and value.shape == other.shape else value
                for name, value in state.items()
            }
    return pairs


def _rate(group: dict[str, Any]) -> float:
    """Return the learning rate of a group of parameters, with timm's factor for its layer."""
    return float(group.get("lr", 0.0)) * float(group.get("lr_scale", 1.0))


def _is_deepspeed(optimizer: Any) -> bool:
    """Tell whether an optimizer is one of DeepSpeed's wrappers; its plain optimizers, such as FusedAdam, are not."""
    return any(kind.__module__.startswith("deepspeed.runtime.") for kind in type(optimizer).__mro__)
