"""Communication between data-parallel processes: the same noise and the same gradient of the scale in all."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor


def active() -> bool:
    """Return whether several processes train together in a process group."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def broadcast_integers(values: list[int], device: torch.device) -> list[int]:
    """Return the values of rank 0 on every rank.

    Args:
        values: Non-negative integers below 2**63.
        device: Device of the weights, which the communication backend can use.
    """
    message = torch.tensor(values, dtype=torch.int64, device=device)
    dist.broadcast(message, src=0)
    return message.tolist()


def average_(tensor: Tensor, device: torch.device) -> None:
    """Replace the tensor by its mean over all ranks, in place.

    Args:
        tensor: Tensor of the same shape on every rank.
        device: Device of the weights, which the communication backend can use.
    """
    message = tensor.to(device)
    dist.all_reduce(message)
    tensor.copy_(message / dist.get_world_size())
