"""The noise of sharded weights: each shard gets its part of the noise that the whole weight would get.

The noise of a whole weight is drawn in chunks, each from a seed of its own (`_noise.standard_normal`). A shard
draws the chunks that overlap it and takes its part. So a draw is the same for every number of processes, and for
weights that are not sharded.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from deelbo._noise import standard_normal
from deelbo._shards import local, start
from deelbo._vectors import Layout
from deelbo._weight_passes import CPU_CHUNK, flat, over_chunks


@dataclass(frozen=True)
class Piece:
    """The part of a shard that lies in one chunk of the whole weight.

    Args:
        chunk: Number of the chunk, counted over all weights.
        size: Numbers in the chunk.
        begin: Where the piece begins in the chunk.
        end: Where it ends.
    """

    chunk: int
    size: int
    begin: int
    end: int

    def noise(self, like: Tensor, key: int) -> Tensor:
        """Return N(0, I) noise for the piece, in this thread's scratch buffer.

        Args:
            like: Tensor that gives dtype and device.
            key: Key of the draw.
        """
        if self.begin == self.end:
            return like[:0]
        return standard_normal(like, key, self.chunk, self.size)[self.begin : self.end]


def pieces_of(numbers: int, begin: int, end: int, first: int = 0) -> list[Piece]:
    """Return the pieces of the range from `begin` to `end` of a weight; one without numbers if the range is empty.

    Args:
        numbers: Real numbers in the whole weight.
        begin: Where the range begins in the flat weight.
        end: Where it ends.
        first: Number of the weight's first chunk.
    """
    cuts = [begin, *range((begin // CPU_CHUNK + 1) * CPU_CHUNK, end, CPU_CHUNK), end]
    pieces = []
    for low, high in itertools.pairwise(cuts):
        chunk = low // CPU_CHUNK
        base = chunk * CPU_CHUNK
        pieces.append(Piece(first + chunk, min(CPU_CHUNK, numbers - base), low - base, high - base))
    return pieces


class ShardNoise:
    """The noise of the shards of a list of weights.

    Args:
        weights: The weights, as DTensors.
    """

    def __init__(self, weights: Sequence[Tensor]) -> None:
        self._first: dict[int, int] = {}  # number of the first chunk of each weight
        self._pieces: list[list[Piece]] = []
        chunks = 0
        for weight in weights:
            numbers, begin = _numbers(weight), start(weight)
            self._first[id(weight)] = chunks
            self._pieces.append(pieces_of(numbers, begin, begin + _numbers(local(weight)), chunks))
            chunks += max(1, -(-numbers // CPU_CHUNK))
        self._flat = [piece for pieces in self._pieces for piece in pieces]

    def __call__(self, like: Tensor, key: int, k: int) -> Tensor:
        """Return the noise of the shards' chunk k on the CPU, in this thread's scratch buffer."""
        return self._flat[k].noise(like, key)

    def vectors(self, layout: Layout, key: int) -> list[Tensor]:
        """Return the noise of all shards in the vectors of the device path."""
        vectors = layout.empty()
        for view, pieces in zip(layout.split(vectors), self._pieces, strict=True):
            for out, piece in zip(view.split([piece.end - piece.begin for piece in pieces]), pieces, strict=True):
                out.copy_(piece.noise(out, key))
        return vectors

    def product_with(self, gradients: Sequence[tuple[Tensor, Tensor]], key: int) -> Tensor:
        """Return the inner product of the noise of whole weights with gradients of them.

        Args:
            gradients: Sharded weights, each with a gradient of the whole weight.
            key: Key of the draw.
        """
        chunks: list[Tensor] = []
        numbers: list[int] = []
        dtypes: list[torch.dtype] = []
        for weight, grad in gradients:
            if id(weight) in self._first:  # not a deterministic parameter
                pieces = flat(grad.contiguous()).split(CPU_CHUNK)
                chunks.extend(pieces)
                numbers.extend(range(self._first[id(weight)], self._first[id(weight)] + len(pieces)))
                dtypes.extend([flat(weight).dtype] * len(pieces))

        def task(k: int, chunk: Tensor) -> Tensor:
            noise = standard_normal(chunk, key, numbers[k], dtype=dtypes[k])
            return torch.dot(noise, chunk.to(noise.dtype))

        return over_chunks(task, chunks)


def _numbers(tensor: Tensor) -> int:
    return tensor.numel() * (2 if tensor.is_complex() else 1)
