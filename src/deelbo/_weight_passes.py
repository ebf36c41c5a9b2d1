"""Passes over all weights of a network on the CPU, in chunks and threads; those on other devices: `_vectors.py`.

A pass runs one small function on aligned chunks of several lists of tensors (weights, saved means, gradients, ...).
Chunks fit into the cache, so that all elementwise operations of a pass read the memory only once, and no temporary
tensor is larger than a chunk. PyTorch runs elementwise operations on all cores, but draws noise on one; so the pass
that draws distributes its chunks over Python threads (PyTorch releases the interpreter lock inside its operations).
On other devices a chunk is a whole tensor, and what runs at every step takes the device path (`on_device`).
"""

from __future__ import annotations

import functools
import itertools
import os
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor, nn

from deelbo._interrupt import DeferredInterrupt
from deelbo._shards import local, start

# Numbers in a chunk. Four float32 chunks fill the L2 caches of two cores. Changing the size changes every draw.
CPU_CHUNK = 1 << 17
SMALL = 1 << 17  # number of weights below which threads cost more time than they save
_MAX_WORKERS = min(8, os.cpu_count() or 1)  # beyond 8, the interpreter lock is the limit

_workspace = threading.local()
_pool: ThreadPoolExecutor | None = None


def on_device(tensor: Tensor) -> bool:
    """Return whether passes over this tensor take the device path: few operations on vectors of all weights.

    So it is everywhere but on the CPU, and there with the environment variable DEELBO_DEVICE_PATH=1, for tests.
    """
    return tensor.device.type != "cpu" or os.environ.get("DEELBO_DEVICE_PATH") == "1"


def scalar_dtype(device: torch.device) -> torch.dtype:
    """Return the data type of variances, scales and sums on a device: float64 where there is one."""
    return torch.float32 if device.type == "mps" else torch.float64


def constants(values: Sequence[float], device: torch.device) -> Tensor:
    """Return numbers as a vector on a device; made once, so that no step waits for a transfer."""
    return _constants(tuple(values), device)


@functools.lru_cache(256)
def _constants(values: tuple[float, ...], device: torch.device) -> Tensor:
    with torch.inference_mode(False):
        return torch.tensor(values, dtype=scalar_dtype(device), device=device)


def flat(tensor: Tensor) -> Tensor:
    """View a dense tensor as a vector in memory order, which also works for channels-last weights.

    Args:
        tensor: Real or complex, contiguous or permuted; a complex number counts as two real ones. Of a sharded tensor
            it is the shard of this process.

    Returns:
        A detached view that shares the tensor's version counter.

    Raises:
        ValueError: If elements of the tensor overlap in memory or leave gaps.
    """
    view = local(tensor)
    view = view.detach() if view.requires_grad else view
    if view.is_complex():
        view = torch.view_as_real(view)
    if view.is_contiguous():
        return view if view.ndim == 1 else view.view(-1)
    if torch.ops.aten.is_non_overlapping_and_dense(view):
        return view.as_strided((view.numel(),), (1,))
    raise ValueError(
        f"a weight of shape {tuple(tensor.shape)} and strides {tensor.stride()} is no dense block of memory: "
        "make it so with .contiguous()"
    )


def aligned(tensor: Tensor, other: Tensor) -> bool:
    """Tell whether two tensors of the same shape have their elements in the same order in memory."""
    return tensor.stride() == other.stride() or (tensor.is_contiguous() and other.is_contiguous())


def split(tensor: Tensor) -> tuple[Tensor, ...]:
    """Split the flat view of a tensor into chunks; that of a shard where the whole weight would be split."""
    view, size = flat(tensor), _chunk_size(tensor)
    first = size - start(tensor) % size
    return (view,) if len(view) <= first else (view[:first], *view[first:].split(size))


def num_chunks(tensor: Tensor) -> int:
    """Return the number of chunks in `split(tensor)`."""
    numbers, size = local(tensor).numel() * (2 if tensor.is_complex() else 1), _chunk_size(tensor)
    return 1 + max(0, -(-(numbers - (size - start(tensor) % size)) // size))


def _chunk_size(tensor: Tensor) -> int:
    return sys.maxsize if on_device(tensor) else CPU_CHUNK


class ChunkCache:
    """Cached chunks of a list of tensors, split again only after a tensor has moved (`.to(device)`, `.double()`)."""

    def __init__(self) -> None:
        self._where: list[tuple[int, tuple[int, ...]]] = []
        self._chunks: list[Tensor] = []

    def __call__(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the chunks of all tensors, in order."""
        # The cached views keep the old memory alive, so an unchanged address is an unchanged tensor.
        where = [(local(t).data_ptr(), t.stride()) for t in tensors]
        if where != self._where:
            with torch.inference_mode(False):  # or the views could not be used outside of inference mode
                self._chunks = [chunk for t in tensors for chunk in split(t)]
            self._where = where
        return self._chunks


class TensorList(nn.Module):
    """Tensors shaped like the parameters of a group, stored in `state_dict` and split into the same chunks.

    Args:
        tensors: One tensor for each parameter, of the same shape.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        super().__init__()
        for i, tensor in enumerate(tensors):
            self.register_buffer(str(i), tensor.detach())
        self._cache = ChunkCache()

    def chunks(self, parameters: Sequence[Tensor]) -> list[Tensor]:
        """Return the chunks, after moving the tensors to the devices, dtypes and memory layouts of the parameters."""
        for name, parameter in zip(self._buffers, parameters, strict=True):
            tensor = self._buffers[name]
            assert tensor is not None
            if tensor.device != parameter.device or tensor.dtype != parameter.dtype or not aligned(tensor, parameter):
                with torch.inference_mode(False):
                    self._buffers[name] = torch.empty_like(parameter, requires_grad=False).copy_(tensor)
        return self._cache(list(self.buffers()))


def over_chunks(
    task: Callable[..., Tensor | None], first: Sequence[Tensor], *others: Sequence[Tensor | None], workers: bool = False
) -> Tensor:
    """Run `task(k, chunk_of_first, chunk_of_second, ...)` for every chunk number k.

    Args:
        task: Function that may change its chunks in place, and returns a small tensor to be summed, or None.
        first: Chunks of the first list of tensors.
        others: Chunks of further lists of tensors, in the same number and sizes.
        workers: Whether Python threads process the chunks on the CPU: for drawing noise, which PyTorch does in one
            thread (its elementwise operations use several), and for passes that a Ctrl-C must not interrupt.

    Returns:
        The sum of the returned tensors, in float64 on the CPU and in the order of the chunks; zero if there are none.
    """
    chunks = list(zip(first, *others, strict=True))
    results: list[Tensor | None] = [None] * len(chunks)
    counter = itertools.count()

    def work() -> None:
        while (k := next(counter)) < len(chunks):
            results[k] = task(k, *chunks[k])

    if workers and all(chunk.device.type == "cpu" for chunk in first):
        executor, number = _executor(), min(torch.get_num_threads(), len(chunks), _MAX_WORKERS)
        with DeferredInterrupt(insistent=False) as interrupt:
            futures = [executor.submit(work) for _ in range(number)]
            errors = [future.exception() for future in futures]
        interrupt.deliver()
        for error in filter(None, errors):
            raise error
    else:
        work()  # in the caller's thread, which has the right CUDA stream
    return _total([r for r in results if r is not None])


def _executor() -> ThreadPoolExecutor:
    global _pool
    if _pool is None:
        threads = torch.get_num_threads()
        pool = ThreadPoolExecutor(_MAX_WORKERS, "deelbo", initializer=_without_openmp)
        started, all_started = threading.Semaphore(0), threading.Event()

        def hold() -> None:  # waits, so that each of these tasks starts a new thread
            started.release()
            all_started.wait()

        try:
            for _ in range(_MAX_WORKERS):
                pool.submit(hold)
            for _ in range(_MAX_WORKERS):
                started.acquire()
        finally:
            all_started.set()
            torch.set_num_threads(threads)  # the workers have changed the default for later threads as well
        _pool = pool
    return _pool


def _without_openmp() -> None:
    """Keep a worker thread from starting OpenMP threads.

    They would hinder PyTorch's: with more threads than cores, libgomp stops spinning between parallel regions, and
    every small operation of the whole process becomes several times slower.
    """
    torch.get_num_threads()  # reads the default once; only a value set after this is kept
    torch.set_num_threads(1)


def _forget_pool() -> None:
    global _pool
    _pool = None
    _workspace.__dict__.clear()


if hasattr(os, "register_at_fork"):  # threads do not survive a fork
    os.register_at_fork(after_in_child=_forget_pool)


def _total(values: Sequence[Tensor]) -> Tensor:
    """Return the sum of tensors of the same shape in float64, with one synchronisation for each device."""
    groups: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for value in values:
        groups.setdefault((value.device, value.dtype), []).append(value)
    sums = [torch.stack(group).to("cpu", torch.float64).sum(0) for group in groups.values()]
    return sum(sums, torch.zeros((), dtype=torch.float64))


def workspace(name: str) -> dict[Any, Any]:
    """Return a dictionary of this thread's, in which it keeps what it uses again."""
    return _workspace.__dict__.setdefault(name, {})


def buffer(like: Tensor, slot: int = 0, dtype: torch.dtype | None = None, size: int | None = None) -> Tensor:
    """Return this thread's scratch buffer, of the size, dtype and device of a chunk; its content is arbitrary.

    Args:
        like: Chunk that gives size, dtype and device.
        slot: Number of the buffer, for tasks that need several at once.
        dtype: Data type of the buffer, that of the chunk if None.
        size: Size of the buffer, that of the chunk if None.
    """
    dtype, size = dtype or like.dtype, like.numel() if size is None else size
    buffers = workspace("buffers")
    key = (like.device, dtype, slot)
    scratch = buffers.get(key)
    if scratch is None or scratch.numel() < size:
        room = max(size, CPU_CHUNK) if like.device.type == "cpu" else size
        with torch.inference_mode(False):
            scratch = buffers[key] = torch.empty(room, dtype=dtype, device=like.device)
    return scratch if scratch.numel() == size else scratch[:size]


def wide(chunk: Tensor, slot: int = 0) -> Tensor:
    """Return a float64 copy in a scratch buffer, or the chunk itself on a device without float64."""
    return chunk if chunk.device.type == "mps" else buffer(chunk, slot, torch.float64).copy_(chunk)


def sum_of_squares(chunk: Tensor) -> Tensor:
    """Return the sum of squares |chunk|^2, computed in float64."""
    copy = wide(chunk)
    return torch.dot(copy, copy)


def grad_chunks(parameters: Sequence[Tensor], create: bool) -> list[Tensor | None]:
    """Return the chunks of the gradients, in the memory layout of their parameters.

    Args:
        parameters: Parameters whose gradients (`.grad`) are wanted.
        create: Whether to create zeros for a missing gradient; otherwise its chunks are None.

    Raises:
        ValueError: If a gradient is sparse.
    """
    chunks: list[Tensor | None] = []
    for parameter in parameters:
        grad = parameter.grad
        if grad is None:
            if not create:
                chunks.extend([None] * num_chunks(parameter))
                continue
            grad = parameter.grad = torch.zeros_like(parameter, requires_grad=False)
        elif grad.layout != torch.strided:
            raise ValueError(
                "sparse gradients are not supported, because the KL has a gradient everywhere: use sparse=False"
            )
        elif not aligned(grad, parameter):
            grad = parameter.grad = torch.empty_like(parameter, requires_grad=False).copy_(grad)
        chunks.extend(split(grad))
    return chunks


def add_grad(parameter: Tensor, value: Tensor) -> None:
    """Add a value to the gradient of a parameter, or make it the gradient if there is none: it must be a new tensor."""
    if parameter.grad is None:
        parameter.grad = value
    else:
        parameter.grad.add_(value)
