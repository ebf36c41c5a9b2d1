"""Sharded weights (FSDP2, `torch.distributed.fsdp.fully_shard`): each process holds a part of every weight.

`fully_shard` turns a parameter into a DTensor, of which a process has some rows: its shard, a contiguous range of the
flat weight, perhaps empty. Passes over the weights run over these shards (`local`), sums over all weights are sums over
processes (`Mesh.total`), and a draw written into shards reaches the network when FSDP gathers them: `reshard` makes it
forget what it has gathered before.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from deelbo import _distributed


def is_sharded(tensor: Tensor) -> bool:
    """Return whether a tensor is a DTensor; by the name of its class, so that nothing need be imported."""
    return type(tensor).__name__ == "DTensor"


def local(tensor: Tensor) -> Tensor:
    """Return the shard that this process has, in the same memory; a tensor that is not sharded is its own shard."""
    if not is_sharded(tensor):
        return tensor
    with torch.no_grad():
        return tensor.to_local()  # type: ignore[attr-defined]


def locals_and_wholes(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return all tensors and, of those that are sharded, the shards: all that has a version counter of its own."""
    return (*tensors, *(local(tensor) for tensor in tensors if is_sharded(tensor)))


def version(tensor: Tensor) -> Any:
    """Return what changes whenever a tensor is changed in place, through itself or through its shard."""
    return (tensor._version, local(tensor)._version) if is_sharded(tensor) else tensor._version


def like(piece: Tensor, tensor: Tensor) -> Tensor:
    """Return a piece as the shard of a tensor that is sharded like another one, or the piece itself if that is not."""
    if not is_sharded(tensor):
        return piece
    from torch.distributed.tensor import DTensor

    spec: Any = tensor
    return DTensor.from_local(piece, spec.device_mesh, spec.placements, shape=tensor.shape, stride=tensor.stride())


def start(tensor: Tensor) -> int:
    """Return where the shard begins in the flat weight, counted in real numbers; 0 for a tensor that is not sharded.

    FSDP2 gives every process the same number of rows, rounded up, so that the last ones may have fewer or none.
    """
    if not is_sharded(tensor):
        return 0
    rows, (rank, world) = len(tensor), _place(tensor)
    first = min(rows, rank * -(-rows // world))
    return first * (tensor.numel() // max(rows, 1)) * (2 if tensor.is_complex() else 1)


def _place(tensor: Any) -> tuple[int, int]:
    """Return the number of this process among those that share a weight, and their number."""
    dim = next(i for i, placement in enumerate(tensor.placements) if placement.is_shard())
    return tensor.device_mesh.get_local_rank(dim), tensor.device_mesh.size(dim)


def part_of(values: Tensor, tensor: Tensor) -> Tensor:
    """Return the part of plain values that belongs to the shard of a tensor of the same number of elements."""
    shard = local(tensor)
    begin = start(tensor) // (2 if tensor.is_complex() else 1)
    return values.reshape(-1)[begin : begin + shard.numel()].view(shard.shape)


def check(name: str, parameter: Tensor) -> None:
    """Refuse a sharded parameter whose shards are no contiguous ranges of it.

    Raises:
        ValueError: If the parameter is sharded in another way than FSDP2 does by itself; the message names it.
    """
    placements = getattr(parameter, "placements", ())
    kinds = sorted(type(placement).__name__ for placement in placements)
    if kinds not in (["Shard"], ["Replicate", "Shard"]) or not any(placement.is_shard(0) for placement in placements):
        raise ValueError(
            f'parameter "{name}" is sharded as {tuple(placements)}; only shards of dimension 0, as fully_shard() makes '
            "them without shard_placement_fn and tensor parallelism, are supported"
        )


def fsdp_modules(model: nn.Module) -> Iterator[Any]:
    """Iterate over the modules to which `fully_shard` was applied."""
    fsdp = sys.modules.get("torch.distributed.fsdp")  # if it was never imported, nothing is sharded
    if fsdp is not None:
        yield from (module for module in model.modules() if isinstance(module, fsdp.FSDPModule))


def reshard(model: nn.Module) -> None:
    """Make FSDP forget the weights that it has gathered, so that the next pass gathers the present shards."""
    for module in fsdp_modules(model):
        module.reshard()


def finish(tensor: Tensor) -> None:
    """Wait until a shard is written: FSDP does not wait for changes between a forward pass and its backward pass."""
    if tensor.device.type != "cpu":
        torch.accelerator.synchronize()


class Mesh:
    """The processes that share a weight, and the sums over them.

    Args:
        weight: A DTensor.
    """

    def __init__(self, weight: Any) -> None:
        self.mesh = weight.device_mesh
        self.shards = _place(weight)[1]

    @property
    def groups(self) -> list[dist.ProcessGroup]:
        """The groups of processes, one for each dimension of the mesh: shards, and replicas of them (HSDP)."""
        return [self.mesh.get_group(dim) for dim in range(self.mesh.ndim)]

    @property
    def device(self) -> torch.device:
        """Device on which the processes communicate."""
        return torch.device(self.mesh.device_type)

    def total(self, value: Tensor) -> Tensor:
        """Return the sum of a value over all shards, the same bits on every process; replicas count once.

        Args:
            value: Value of this process's shards.
        """
        average = value.clone()
        _distributed.average_(average, self.device, self.groups)
        return average * self.shards


def mesh_of(model: nn.Module, parameters: Mapping[str, Tensor]) -> Mesh | None:
    """Return the mesh over which the parameters of a network are sharded; None if they are not.

    Args:
        model: The network.
        parameters: Its trainable parameters by name.

    Raises:
        ValueError: If a part of the parameters is not sharded, or over other processes than the rest.
    """
    first: Any = next((p for p in parameters.values() if is_sharded(p)), None)
    if first is None:
        return None
    for name, parameter in parameters.items():
        if getattr(parameter, "device_mesh", None) != first.device_mesh:
            raise ValueError(
                f'parameter "{name}" is not sharded over the same processes as the others: call fully_shard() on the '
                "whole network, with one mesh and without ignored_params"
            )
    if any(not hasattr(module._get_fsdp_state(), "_fsdp_param_groups") for module in fsdp_modules(model)):
        raise ValueError(f"sharded weights need a newer PyTorch than {torch.__version__}: they were tried with 2.15")
    return Mesh(first)


def total(values: Sequence[Tensor], weight: Tensor) -> list[Tensor]:
    """Return the sums of values over all shards of the weights they were computed from, with one message.

    Args:
        values: Numbers of this process's shards.
        weight: One of the weights; if it is not sharded, the values are the sums already.
    """
    if not is_sharded(weight) or not values:
        return list(values)
    return list(Mesh(weight).total(torch.stack(list(values))).unbind())


def unreduced_gradients(model: nn.Module) -> list[tuple[Tensor, Tensor]]:
    """Return sharded weights and the gradients of the whole weights that await FSDP's average over the processes.

    They are there while `set_requires_gradient_sync(False)` accumulates gradients without communication.
    """
    found = []
    for state in dict.fromkeys(module._get_fsdp_state() for module in fsdp_modules(model)):  # some modules share one
        for part in [part for group in state._fsdp_param_groups for part in group.fsdp_params]:
            whole = getattr(part, "_unsharded_param", None)
            if whole is not None and whole.grad is not None:
                found.append((part.sharded_param, whole.grad))
    return found


def clip_grad_norm_(parameters: Sequence[Tensor], max_norm: float) -> None:
    """Scale all gradients such that their norm, over all processes, is at most `max_norm`.

    Args:
        parameters: Sharded weights, and parameters that every process has as a whole.
        max_norm: Largest norm.
    """
    grads = [(is_sharded(p), local(p.grad)) for p in parameters if p.grad is not None]
    sharded = [g for part, g in grads if part]
    if not sharded:
        return
    first = next(p for p in parameters if is_sharded(p))
    squares = total([_square(sharded)], first)[0] + _square([g for part, g in grads if not part]).to(first.device)
    factor = (max_norm / (squares.sqrt() + 1e-6)).clamp_(max=1)
    for _, grad in grads:
        grad.mul_(factor.to(grad.device, grad.real.dtype))


def _square(grads: Sequence[Tensor]) -> Tensor:
    """Return the sum of squares of all gradients, in float64 where there is one."""
    norms = [torch.linalg.vector_norm(grad) for grad in grads] or [torch.zeros(())]
    return torch.stack([norm.to(norms[0].device) for norm in norms]).double().square().sum()
