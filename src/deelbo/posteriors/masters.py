r"""Masters: the means of bfloat16 weights, in float32.

A bfloat16 weight has 8 significant bits, too few for a mean that moves by a small learning rate and for noise of scale
1e-4. So each has a *master*, a float32 parameter with its mean m, which prior, optimizer and `posterior.parameters()`
see in its place. The network's weight is made of it: outside a draw it is m, rounded to the nearest; in a draw it is

    theta = R(m + scale * eps),   eps ~ N(0, I),   where R rounds at random with E[R(x)] = x (`rounding.py`).

The gradient g is that of the loss at theta, in bfloat16; it is added to the master's, in float32, when the draw ends.
The noise that belongs to it is eps as it was drawn, not (theta - m) / scale. With a Hessian H and the rounding error
r = theta - m - scale * eps, whose expectation given eps is zero,

    E<g, scale * eps> = scale^2 E[tr H],      but      E<g, theta - m> = scale^2 E[tr H] + sum_i H_ii Var(r_i),

and Var(r_i) is about scale^2 itself for a weight of 0.05 and a scale of 1e-4: the learned scale would be far too small.
So eps is drawn a second time from its key instead of being read off the weights, and needs no memory.

Bytes for each weight: 2 in the network, 4 for the master, 4 for its gradient, and what the optimizer keeps in float32
(SGD with momentum 4, Adam 8); 2 more for the gradient of the network until the draw ends. In float32 it is 4 for the
weight, 4 for its gradient, 4 for the mean during a draw, and the optimizer's.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.weak import TensorWeakRef, WeakTensorKeyDictionary

from deelbo._noise import seeded_generator, standard_normal
from deelbo._seeds import GOLDEN, mix
from deelbo._vectors import LayoutCache, uninterrupted
from deelbo._weight_passes import (
    ChunkCache,
    aligned,
    buffer,
    grad_chunks,
    on_device,
    over_chunks,
    sum_of_squares,
)
from deelbo.posteriors.rounding import stochastic_round_

_ROUNDING = 2  # what a key is mixed with for the random bits of rounding
_BEHIND = 1 << 32  # number of the first chunk behind all chunks of a network's float32 weights


def mean_of(weight: nn.Parameter) -> nn.Parameter:
    """Return the parameter that holds the mean of a weight: its master if it is bfloat16, else the weight itself.

    A weight has one master, however many posteriors and priors ask for it, for as long as one of them exists.
    """
    if weight.dtype != torch.bfloat16:
        return weight
    known = _masters.get(weight)
    master = None if known is None else known()
    if master is None:
        master = nn.Parameter(weight.detach().float())
        _masters[weight] = TensorWeakRef(master)
    return master


class Masters(nn.Module):
    """The masters of some bfloat16 weights, and the passes over both.

    Masters are written into the network after the `step()` of an optimizer that has them, and before a draw if they
    have changed otherwise, as by `load_state_dict`. Where the network has changed instead, they take over its weights.

    Args:
        weights: The network's bfloat16 weights by name; there may be none.
        alone: Whether the network has no other random weights: then the noise is that of the same network in float32.
    """

    def __init__(self, weights: Mapping[str, nn.Parameter], alone: bool = True) -> None:
        super().__init__()
        self._first_chunk = 0 if alone else _BEHIND
        self.weights = list(weights.values())
        for name, weight in weights.items():
            self.register_parameter(f"mean:{name.replace('.', '/')}", mean_of(weight))
        self._weight_cache, self._mean_cache, self._layouts = ChunkCache(), ChunkCache(), LayoutCache()
        self._versions: list[int] = []  # of the masters that the network has
        self._draw: list[Tensor] = []  # copy of the draw, while the weights hold the means
        if self.weights:
            _watch_optimizers()
            _live.add(self)
            self._adopt()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make the masters of a copied network known."""
        super().__setstate__(state)
        if self.weights:
            _masters.update({w: TensorWeakRef(m) for w, m in zip(self.weights, self.means, strict=True)})
            _live.add(self)

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        self.write()

    @property
    def means(self) -> list[nn.Parameter]:
        """The masters, in the order of the weights."""
        return list(self._parameters.values())  # type: ignore[arg-type]

    # ---- masters and network in step ----

    @torch.no_grad()
    def write(self, stepped: set[int] | None = None) -> None:
        """Write masters into the network, rounded to the nearest.

        Args:
            stepped: The `id` of each parameter that may have changed; None for all.
        """
        means = self.means
        written = [i for i, mean in enumerate(means) if stepped is None or id(mean) in stepped]
        if written:
            with uninterrupted():
                torch._foreach_copy_([self.weights[i] for i in written], [means[i] for i in written])
                for i in written:
                    self._versions[i] = means[i]._version

    def follow(self) -> None:
        """Bring masters and network in step, and masters to the device and memory layout of their weights."""
        if not self.weights:
            return
        for weight, mean in zip(self.weights, self.means, strict=True):
            if mean.device != weight.device or not aligned(mean, weight):
                with torch.inference_mode(False):
                    mean.data = torch.empty_like(weight, dtype=mean.dtype, requires_grad=False).copy_(mean.data)
                mean.grad = None
        changed = {id(m) for m, version in zip(self.means, self._versions, strict=True) if m._version != version}
        if changed:
            self.write(changed)
        self._adopt()

    @torch.no_grad()
    def _adopt(self) -> None:
        """Set a master to its weight wherever the weight is not the rounded master: somebody has changed it."""

        def task(k: int, weight: Tensor, mean: Tensor) -> None:
            rounded = buffer(weight).copy_(mean)
            if not torch.equal(rounded, weight):
                mean.copy_(torch.where(rounded == weight, mean, weight))

        weights, means = self._chunks()
        if on_device(means[0]):
            layout = self._layouts(means)
            vectors = [
                torch.where(mean.bfloat16() == weight, mean, weight)
                for mean, weight in zip(layout.gather(means), layout.gather(weights), strict=True)
            ]
            with uninterrupted():
                torch._foreach_copy_(means, layout.split(vectors))
        else:
            over_chunks(task, weights, means)
        self._versions = [mean._version for mean in self.means]

    # ---- draws ----

    @torch.no_grad()
    def draw(self, key: int, scale: Tensor) -> None:
        """Write R(mean + scale * eps) into the network; the same key gives the same bits again."""
        if not self.weights:
            return
        weights, means = self._chunks()
        rounding = mix(key, _ROUNDING)
        if on_device(means[0]):
            layout, noise = self._layouts(means), self._scaled_noise(key, scale)
            torch._foreach_add_(layout.split(noise), means)
            for k, vector in enumerate(noise):
                stochastic_round_(vector, seeded_generator(vector.device, rounding, k))
            with uninterrupted():
                torch._foreach_copy_(weights, layout.split(noise))
            return
        sigma, noise_key = float(scale), self._noise_key(key)

        def task(k: int, weight: Tensor, mean: Tensor) -> None:
            drawn = standard_normal(mean, noise_key, k).mul_(sigma).add_(mean)
            weight.copy_(stochastic_round_(drawn, seeded_generator(mean.device, rounding, k)))

        over_chunks(task, weights, means, workers=True)

    def _noise_key(self, key: int) -> int:
        """Return the key of the noise, other than that of float32 weights; chunk k adds k * GOLDEN to it."""
        return key + self._first_chunk * GOLDEN

    def _scaled_noise(self, key: int, scale: Tensor) -> list[Tensor]:
        """Return scale * eps in vectors, on the device path."""
        _refuse_capture(self.means[0].device)
        noise = self._layouts(self._chunks()[1]).noise(self._noise_key(key))
        return [vector.mul_(scale.to(vector.device)) for vector in noise]

    @torch.no_grad()
    def inner_product(self, key: int, scale: Tensor) -> Tensor:
        """Return <g, scale * eps> for the gradients of the network and the noise of this key."""
        weights, means = self._chunks()
        grads = grad_chunks(self.weights, create=False)
        if all(grad is None for grad in grads):
            return torch.zeros((), dtype=torch.float64)
        if on_device(means[0]):
            layout = self._layouts(means)
            noise = self._scaled_noise(key, scale)
            filled = [torch.zeros_like(w) if g is None else g for g, w in zip(grads, weights, strict=True)]
            products = [torch.dot(eps, g.float()) for eps, g in zip(noise, layout.gather(filled), strict=True)]
            return sum((product.to(products[0]) for product in products[1:]), products[0])
        noise_key = self._noise_key(key)

        def task(k: int, mean: Tensor, grad: Tensor | None) -> Tensor | None:
            if grad is None:
                return None
            return torch.dot(standard_normal(mean, noise_key, k), buffer(mean, 1).copy_(grad))

        return over_chunks(task, means, grads, workers=True) * float(scale)

    def squared_noise(self, key: int) -> float:
        """Return |eps|^2 of the draw with this key."""
        return sum(float(sum_of_squares(eps)) for eps in self._noise(key))

    def _noise(self, key: int) -> list[Tensor]:
        """Return eps for every chunk, in memory of its own; for what is not done at every step."""
        _, means = self._chunks()
        if means and on_device(means[0]):
            ones = torch.ones((), device=means[0].device)
            return self._layouts(means).split(self._scaled_noise(key, ones))
        return [standard_normal(mean, self._noise_key(key), k).clone() for k, mean in enumerate(means)]

    def absorb(self, anew: bool = False) -> None:
        """Move the gradients of the network to the masters: added in float32, and None in the network.

        Args:
            anew: Whether a new step begins, so that what the masters have is of the last one and is dropped; the loop
                may have called `model.zero_grad()` alone, which does not know the masters.
        """
        if anew:
            for mean in self.means:
                mean.grad = None
        first: list[tuple[Tensor, Tensor]] = []
        later: list[tuple[Tensor, Tensor]] = []
        with torch.inference_mode(False), torch.no_grad(), uninterrupted():
            for weight, mean in zip(self.weights, self.means, strict=True):
                grad, weight.grad = weight.grad, None
                if grad is not None and mean.grad is None:
                    mean.grad = torch.empty_like(mean, requires_grad=False)
                    first.append((mean.grad, grad))
                elif grad is not None and mean.grad is not None:
                    later.append((mean.grad, grad))
            if first:
                torch._foreach_copy_([new for new, _ in first], [grad for _, grad in first])
            if later:
                torch._foreach_add_([sums for sums, _ in later], [grad for _, grad in later])

    def restore(self) -> None:
        """Write the means into the network again, rounded to the nearest."""
        self._draw = []
        self.write()

    def swap(self) -> None:
        """Let the network hold the means instead of the draw, or the draw again."""
        if self._draw:
            with torch.no_grad(), uninterrupted():
                torch._foreach_copy_(list[Tensor](self.weights), self._draw)
                self._draw = []
        elif self.weights:
            draw = [weight.detach().clone() for weight in self.weights]
            self.restore()
            self._draw = draw

    @contextmanager
    def at_draw(self, key: int, scale: Tensor) -> Iterator[None]:
        """Let the masters be mean + scale * eps inside the block, before rounding, for the densities of a draw."""
        kept = [mean.detach().clone() for mean in self.means]
        with torch.no_grad(), torch.autograd._unsafe_preserve_version_counter(tuple(self.means)):
            try:
                for mean, eps in zip(self._chunks()[1], self._noise(key), strict=True):
                    mean.add_(eps.mul_(scale))
                yield
            finally:
                for weight, value in zip(self.means, kept, strict=True):
                    weight.copy_(value)

    def _chunks(self) -> tuple[list[Tensor], list[Tensor]]:
        return self._weight_cache(self.weights), self._mean_cache(self.means)


_masters: WeakTensorKeyDictionary = WeakTensorKeyDictionary()  # weight to a weak reference of its master
_live: weakref.WeakSet[Masters] = weakref.WeakSet()


@functools.cache
def _watch_optimizers() -> None:
    """Write masters into their networks after every step of an optimizer that has them."""

    def after_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        stepped = {id(p) for group in optimizer.param_groups for p in group["params"]}
        for masters in list(_live):
            masters.write(stepped)

    register_optimizer_step_post_hook(after_step)


def _refuse_capture(device: torch.device) -> None:
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise RuntimeError("draws of bfloat16 weights cannot be captured in a CUDA graph: their noise is drawn twice")
