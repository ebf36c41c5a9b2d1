"""Embeddings on the CPU: rows that a batch does not use cannot change the loss, so their noise is not drawn.

Half of the weights of a small language model are rows of its embedding, of which a batch of short texts uses some
hundred. In a draw for training a row gets its noise when a forward pass first asks for it. Its gradient is the
same as if all rows had noise, and so is <gradient, noise>, since the gradient of an unused row is zero.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from deelbo._noise import rows_of_noise

LEAST = 1 << 20  # number of weights above which an embedding is worth the trouble
CHECKS = 3  # number of steps in which the gradient is looked at for uses of other rows


class LazyEmbedding:
    """The rows of one embedding that are drawn, and their means.

    Args:
        module: The embedding.
        offset: Number of rows of the embeddings before it, so that each row has noise of its own.
        add_inner_product: Called with <gradient, noise> of gradients that are older than the noise, times -1.
    """

    def __init__(self, module: nn.Embedding, offset: int, add_inner_product: Callable[[Tensor], None]) -> None:
        self.weight = module.weight
        self._module, self._offset, self._add = module, offset, add_inner_product
        self._other_use = False
        self._checks = CHECKS
        self._key: int | None = None
        self._scale = 0.0
        self._fresh = False
        self._used = torch.zeros(len(module.weight), dtype=torch.bool)
        self._rows = torch.empty(0, dtype=torch.long)
        self._means = module.weight.detach()[:0]
        self.open = False  # whether a draw has begun
        module.register_forward_pre_hook(RowHook(weakref.ref(self)))

    @property
    def usable(self) -> bool:
        """Whether the next draw may leave rows alone: not after another use of the weights, or in a copied network."""
        hooks = self._module._forward_pre_hooks.values()
        hooked = any(isinstance(hook, RowHook) and hook.embedding() is self for hook in hooks)
        return hooked and not self._other_use and self.weight.device.type == "cpu" and self.weight.is_contiguous()

    def begin(self, key: int, scale: float) -> None:
        """Begin a draw: no row has noise yet, unless the same draw is written again for another backward pass.

        Args:
            key: Key of the draw.
            scale: Standard deviation of the noise.
        """
        again = self._rows if key == self._key else None
        self._key, self._scale, self.open = key, scale, True
        self._fresh = self.weight.grad is None
        self._used.zero_()
        self._rows, self._means = self._rows[:0], self._means[:0]
        if again is not None:
            self.touch(again)

    @torch.no_grad()
    def touch(self, indices: Tensor) -> None:
        """Give noise to rows that have none yet.

        Args:
            indices: Indices of rows, as the embedding gets them; if one is out of range, the embedding will tell.
        """
        if not self.open or not indices.numel():
            return
        low, high = torch.aminmax(indices)
        if low < 0 or high >= len(self._used):
            return
        wanted = torch.zeros_like(self._used)
        wanted[indices.flatten().long()] = True
        rows = (wanted & ~self._used).nonzero()[:, 0]
        if not len(rows):
            return
        means = self.weight.detach()[rows]
        self._rows, self._means = torch.cat([self._rows, rows]), torch.cat([self._means, means])
        self._used |= wanted
        drawn = means + self._scale * self._noise(rows)
        with torch.autograd._unsafe_preserve_version_counter(self.weight):
            self.weight.detach().index_copy_(0, rows, drawn)
        if self.weight.grad is not None:  # of earlier draws, and so not of this noise
            self._add(-self._product(rows, means))

    def _noise(self, rows: Tensor) -> Tensor:
        """Return N(0, 1) noise, of each row a function of the key and its index."""
        assert self._key is not None
        number = -1 - self._offset  # below zero: chunks have the others
        return rows_of_noise(rows, self.weight.shape[1], self._key, number, self.weight.dtype)

    def _product(self, rows: Tensor, means: Tensor) -> Tensor:
        assert self.weight.grad is not None
        noise = self.weight.detach()[rows] - means
        return (noise.double() * self.weight.grad[rows].double()).sum()

    @torch.no_grad()
    def inner_product(self) -> Tensor:
        """Return <gradient, noise>, and see whether rows without noise have a gradient."""
        if self.weight.grad is None:
            return torch.zeros((), dtype=torch.float64)
        if self._checks and self._fresh:
            self._checks -= 1
            everywhere, here = self.weight.grad.norm(), self.weight.grad[self._rows].norm()
            self._other_use = bool(everywhere > here * (1 + 1e-3))
        return self._product(self._rows, self._means)

    @torch.no_grad()
    def sum_of_squares(self) -> Tensor:
        """Return |noise|^2 of the whole draw, whose missing rows are drawn now."""
        if not self.open:
            return torch.zeros((), dtype=torch.float64)
        self.touch(torch.arange(len(self._used)))
        return (self.weight.detach()[self._rows] - self._means).double().square().sum()

    @torch.no_grad()
    def restore(self) -> None:
        """Write the means back."""
        if self.open:
            self.weight.detach().index_copy_(0, self._rows, self._means)
            self.open = False

    @torch.no_grad()
    def swap(self) -> None:
        """Exchange draw and means."""
        if self.open:
            drawn = self.weight.detach()[self._rows]
            self.weight.detach().index_copy_(0, self._rows, self._means)
            self._means = drawn


class RowHook:
    """Hook that gives noise to the rows of a call; lost when the network is copied or the posterior is gone."""

    def __init__(self, embedding: Callable[[], LazyEmbedding | None] | None = None) -> None:
        self.embedding = embedding or (lambda: None)
        # Not compiled with the network; nor is the compiler imported where there is nothing to touch.
        self._touch = None if embedding is None else torch.compiler.disable(self._touch_rows)

    def __call__(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        """Touch the rows; PyTorch calls it before the embedding."""
        if self._touch is not None and args:
            self._touch(args[0])

    def _touch_rows(self, indices: Tensor) -> None:
        if (embedding := self.embedding()) is not None:
            embedding.touch(indices)

    def __reduce__(self) -> tuple[type[RowHook], tuple[()]]:
        return RowHook, ()


def large_embeddings(model: nn.Module, random: list[nn.Parameter]) -> list[nn.Embedding]:
    """Return the embeddings whose unused rows are worth leaving alone.

    Args:
        model: The bare network.
        random: The weights that have noise.
    """
    owners: dict[int, int] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            owners[id(parameter)] = owners.get(id(parameter), 0) + 1
    chosen = {id(parameter) for parameter in random}
    return [
        module
        for module in model.modules()
        if type(module) is nn.Embedding
        and id(module.weight) in chosen
        and owners[id(module.weight)] == 1  # not tied to another layer
        and module.max_norm is None
        and not module.sparse
        and module.weight.numel() >= LEAST
        and not module.weight.is_complex()
        and not hasattr(module.weight, "device_mesh")  # each process has a part of a sharded weight
    ]
