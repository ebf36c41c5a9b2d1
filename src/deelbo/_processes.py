"""Several processes that train one run together: one decides and writes, all take the same way, and one tells of it.

A launcher such as torchrun starts them, and numbers them by the variable RANK.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from deelbo._distributed import active
from deelbo.errors import LostProcessError

T = TypeVar("T")

_LOST = ("connection closed by peer", "connection reset by peer", "broken pipe", "timed out", "heartbeat")


def is_first() -> bool:
    """Tell whether this process is the one that writes files and prints; the only one is."""
    return os.environ.get("RANK", "0") == "0"


def launched_together() -> bool:
    """Tell whether a launcher has started several processes, which may not have met yet."""
    return os.environ.get("WORLD_SIZE", "1") != "1"


def from_first(make: Callable[[], T]) -> T:
    """Return what the first process makes to all of them; an error there is raised in all of them.

    Args:
        make: Function that only the first process calls; its result can be pickled, and has tensors on the CPU only.
    """
    if not active():
        return make()
    message: list[T | None] = [None]
    with shared_errors():
        if dist.get_rank() == 0:
            message = [make()]
    dist.broadcast_object_list(message, src=0)
    return message[0]  # type: ignore[return-value]


@contextmanager
def shared_errors() -> Iterator[None]:
    """Let an error in one process be an error of all, so that none waits for it in vain; one of them tells of it.

    Nothing inside the block may wait for another process.
    """
    error: Exception | None = None
    try:
        yield
    except Exception as found:
        error = found
    errors = [error]
    if active():
        errors = [None] * dist.get_world_size()
        dist.all_gather_object(errors, None if error is None else _sendable(error))
    for rank, first in enumerate(errors):
        if first is not None and active() and rank != dist.get_rank():
            first.__dict__["told_elsewhere"] = True
            raise first
        if first is not None and error is not None:
            raise error


def told_elsewhere(error: BaseException) -> bool:
    """Tell whether another process tells the user of this error."""
    return error.__dict__.get("told_elsewhere", False) or (getattr(error, "of_all", False) and not is_first())


def any_process(value: bool) -> bool:
    """Tell whether something is so in any of the processes, which all get the same answer."""
    if not active():
        return value
    # NCCL knows only GPUs; accelerate has made this process's own the current one.
    message = torch.tensor(int(value), device="cuda" if dist.get_backend() == "nccl" else "cpu")
    dist.all_reduce(message, dist.ReduceOp.MAX)
    return bool(message)


def copy_from_first(tensors: Iterable[Tensor]) -> None:
    """Give tensors the values that they have in the first process, in place."""
    if active():
        for tensor in tensors:
            dist.broadcast(tensor, src=0)


@contextmanager
def lost_processes(advice: str) -> Iterator[None]:
    """Turn the error of a connection that broke off into one that says what has happened.

    Args:
        advice: What the user can do now.

    Raises:
        LostProcessError: If another process has ended.
    """
    try:
        yield
    except RuntimeError as error:
        if not active() or not any(words in str(error).lower() for words in _LOST):
            raise
        lost = f"one of the {dist.get_world_size()} processes has ended, so the others cannot go on"
        raise LostProcessError(f"{lost}; {advice}") from error


def _sendable(error: Exception) -> Exception:
    """Return an error that other processes can read: the error itself, or its text."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(str(error))
    return error
