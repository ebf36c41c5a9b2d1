"""Communication between data-parallel processes: the same noise and the same gradient of the scale in all."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor


def active() -> bool:
    """Return whether several processes train together in a process group."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def broadcast_integers(
    values: list[int], device: torch.device, groups: Sequence[dist.ProcessGroup | None] = (None,)
) -> list[int]:
    """Return the values of the first rank on every rank.

    Args:
        values: Non-negative integers below 2**63.
        device: Device of the weights, which the communication backend can use.
        groups: Groups of this rank, one for each dimension of a mesh; None for all ranks.
    """
    message = torch.tensor(values, dtype=torch.int64, device=device)
    for group in groups:
        dist.broadcast(message, src=0 if group is None else dist.get_global_rank(group, 0), group=group)
    return message.tolist()


def average_(tensor: Tensor, device: torch.device, groups: Sequence[dist.ProcessGroup | None] = (None,)) -> None:
    """Replace the tensor by its mean over all ranks, in place.

    Args:
        tensor: Tensor of the same shape on every rank.
        device: Device of the weights, which the communication backend can use.
        groups: Groups of this rank, one for each dimension of a mesh; None for all ranks.
    """
    message = tensor.to(device)
    for group in groups:
        dist.all_reduce(message, group=group)
        message = message / dist.get_world_size(group)
    tensor.copy_(message)
