"""Copies of the means, which are kept while the network's weights hold a draw."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from deelbo._vectors import Layout, LayoutCache, empty_like, uninterrupted
from deelbo._weight_passes import ChunkCache, buffer, on_device, over_chunks


class SavedMeans:
    """Copies of the means of some weights, for the time in which the weights hold a draw.

    Args:
        weights: The weights, which may be replaced by others of the network before a draw.

    Attributes:
        means: The copies; their values are arbitrary outside a draw.
        vectors: The memory of `means`, on the device path.
        kept: 1 for each chunk whose mean has been copied, so that `restore` can be called at any time.
    """

    def __init__(self, weights: Sequence[nn.Parameter]) -> None:
        self.weights = weights
        self.means: list[Tensor] = []
        self.vectors: list[Tensor] = []
        self.kept = bytearray()
        self._weight_cache, self._mean_cache, self._layouts = ChunkCache(), ChunkCache(), LayoutCache()
        self._room_for: list[Tensor] | None = None

    def chunks(self) -> tuple[list[Tensor], list[Tensor]]:
        """Return the chunks of the weights, and those of the copies."""
        return self._weight_cache(self.weights), self._mean_cache(self.means)

    def layout(self) -> Layout:
        """Return the layout of the weights in vectors, for the device path."""
        return self._layouts(self._weight_cache(self.weights))

    def make_room(self) -> None:
        """Make the copies, of arbitrary values, if there are none or a weight has moved."""
        chunks = self._weight_cache(self.weights)
        if chunks is self._room_for:
            return
        if self._on_device():
            self.vectors, self.means = empty_like(self.weights)
        else:
            with torch.inference_mode(False):
                self.means = [torch.empty_like(weight, requires_grad=False) for weight in self.weights]
        self._room_for = chunks

    def swap(self) -> None:
        """Exchange the values of weights and copies."""
        weights, means = self.chunks()
        if self._on_device():
            with uninterrupted():
                drawn = self.layout().gather(weights)
                torch._foreach_copy_(weights, means)
                torch._foreach_copy_(self.vectors, drawn)
            return

        def task(k: int, weight: Tensor, mean: Tensor) -> None:
            scratch = buffer(weight).copy_(weight)
            weight.copy_(mean)
            mean.copy_(scratch)

        over_chunks(task, weights, means, workers=True)

    def restore(self) -> None:
        """Write the means that were kept back into the weights."""
        weights, means = self.chunks()
        kept = [k for k, done in enumerate(self.kept) if done]
        weights, means = [weights[k] for k in kept], [means[k] for k in kept]
        if weights and self._on_device():
            with uninterrupted():
                torch._foreach_copy_(weights, means)
        else:
            over_chunks(_copy, weights, means, workers=True)

    def _on_device(self) -> bool:
        return bool(self.weights) and on_device(self.weights[0])


def _copy(k: int, weight: Tensor, mean: Tensor) -> None:
    weight.copy_(mean)
