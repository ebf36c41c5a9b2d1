"""Passes over all weights on a device: one vector for all weights of a dtype, so that a pass is a few kernels.

A kernel for every tensor would keep a GPU waiting for Python. So weights are gathered into vectors (`torch.cat`), what
belongs to deelbo (saved means, prior means, covariances) lies in vectors of the same layout from the start, and
results go back with one operation for all tensors (`torch._foreach_...`). Nothing here is read by the host.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from deelbo._interrupt import DeferredInterrupt
from deelbo._noise import seeded_generator
from deelbo._shards import like as sharded_like
from deelbo._shards import local
from deelbo._weight_passes import TensorList, flat


class Layout:
    """Which tensors of a list share a dtype and a device, and so a vector.

    Args:
        chunks: Flat tensors, such as the weights of a posterior or of a prior group.
    """

    def __init__(self, chunks: Sequence[Tensor]) -> None:
        self.chunks = chunks  # keeps the memory alive, so that a cached layout can be recognised by it
        parts: dict[tuple[torch.device, torch.dtype], list[int]] = {}
        for i, chunk in enumerate(chunks):
            parts.setdefault((chunk.device, chunk.dtype), []).append(i)
        self.parts = list(parts.values())
        self.sizes = [[len(chunks[i]) for i in part] for part in self.parts]

    def gather(self, chunks: Sequence[Tensor]) -> list[Tensor]:
        """Return new vectors with the values of the chunks."""
        return [torch.cat([chunks[i] for i in part]) for part in self.parts]

    def split(self, vectors: Sequence[Tensor]) -> list[Tensor]:
        """Return the pieces of vectors that belong to the chunks, in the order of the chunks."""
        pieces: list[Tensor] = [vectors[0]] * len(self.chunks)
        for part, sizes, vector in zip(self.parts, self.sizes, vectors, strict=True):
            for i, piece in zip(part, vector.split(sizes), strict=True):
                pieces[i] = piece
        return pieces

    def empty(self) -> list[Tensor]:
        """Return new vectors with arbitrary values."""
        firsts = [self.chunks[part[0]] for part in self.parts]
        with torch.inference_mode(False):
            return [first.new_empty(sum(sizes)) for first, sizes in zip(firsts, self.sizes, strict=True)]

    def noise(self, key: int) -> list[Tensor]:
        """Return new vectors of N(0, I) noise, a function of the key.

        While a CUDA graph is captured, the noise comes from PyTorch's own generator instead, which graphs advance.
        """
        vectors = self.empty()
        for k, vector in enumerate(vectors):
            if vector.device.type == "cuda" and torch.cuda.is_current_stream_capturing():
                vector.normal_()
                continue
            vector.normal_(generator=seeded_generator(vector.device, key, k))
        return vectors


class LayoutCache:
    """The layout of a list of chunks, made again only when the list is another one."""

    def __init__(self) -> None:
        self._layout: Layout | None = None

    def __call__(self, chunks: Sequence[Tensor]) -> Layout:
        """Return the layout of the chunks."""
        if self._layout is None or self._layout.chunks is not chunks:
            self._layout = Layout(chunks)
        return self._layout


class Rows:
    """Lists of tensors, each shaped like the parameters of a group, as the rows of one matrix for each vector.

    Args:
        lists: The lists. Their tensors become views of the matrices, so this takes no memory of its own.
    """

    def __init__(self, lists: Sequence[TensorList]) -> None:
        self.lists = list(lists)
        self._matrices: list[Tensor] = []
        self._where: list[int] = []

    def __call__(self, weights: Sequence[Tensor], layout: Layout) -> list[Tensor]:
        """Return the matrices, [number of lists, size of the vector], on the devices of the weights.

        Args:
            weights: The parameters of the group.
            layout: Layout of their chunks.
        """
        for tensors in self.lists:
            tensors.chunks(weights)  # moves them to the devices, dtypes and memory layouts of the weights
        where = [local(buffer).data_ptr() for tensors in self.lists for buffer in tensors.buffers()]
        if where != self._where:
            with torch.inference_mode(False):
                self._matrices = [
                    torch.stack(rows)
                    for rows in zip(*(layout.gather(tensors.chunks(weights)) for tensors in self.lists), strict=True)
                ]
                for k, tensors in enumerate(self.lists):
                    for name, piece in zip(tensors._buffers, layout.split([m[k] for m in self._matrices]), strict=True):
                        buffer = tensors._buffers[name]
                        assert buffer is not None
                        tensors._buffers[name] = sharded_like(shaped(piece, local(buffer)), buffer)
            self._where = [local(buffer).data_ptr() for tensors in self.lists for buffer in tensors.buffers()]
        return self._matrices


def shaped(piece: Tensor, like: Tensor) -> Tensor:
    """View a piece of a vector in shape and memory layout of a dense tensor."""
    if like.is_complex():
        return torch.view_as_complex(piece.view(-1, 2)).as_strided(
            like.shape, like.stride(), piece.storage_offset() // 2
        )
    return piece.as_strided(like.shape, like.stride())


def empty_like(tensors: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Return vectors with arbitrary values, and tensors like the given ones (or their shards) as views of them."""
    tensors = [local(tensor) for tensor in tensors]
    with torch.inference_mode(False):
        layout = Layout([flat(tensor) for tensor in tensors])
        vectors = layout.empty()
        return vectors, [shaped(piece, like) for piece, like in zip(layout.split(vectors), tensors, strict=True)]


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let a Ctrl-C wait until the block, whose operations belong together, is done."""
    with DeferredInterrupt(insistent=False) as interrupt:
        yield
    interrupt.deliver()
