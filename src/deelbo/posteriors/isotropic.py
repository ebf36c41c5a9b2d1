"""The isotropic posterior of the paper: one scale for all weights."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deelbo._modules import unwrap
from deelbo._noise import standard_normal
from deelbo._vectors import uninterrupted
from deelbo._weight_passes import (
    SMALL,
    add_grad,
    buffer,
    on_device,
    over_chunks,
    scalar_dtype,
    sum_of_squares,
)
from deelbo.posteriors.base import POSTERIORS, GaussianPosterior, inverse_softplus
from deelbo.posteriors.embeddings import LazyEmbedding, large_embeddings
from deelbo.posteriors.stationary import VarianceLines

if TYPE_CHECKING:
    from deelbo.priors.gaussian import PriorGroup


BOUNDS = (1e-12, 500.0)  # of a scale in closed form


@POSTERIORS.register("isotropic", "one scale for all weights")
class IsotropicPosterior(GaussianPosterior):
    r"""q(theta) = N(theta | mean, scale^2 I_D) over every parameter with `requires_grad`.

    With theta = mean + scale * eps and eps ~ N(0, I), the reparameterised gradients of a loss are  d loss / d mean = g
    and  d loss / d scale = g . eps,  where g is the gradient at the draw. The scale is stored through softplus, and
    `objective.backward()` sets it to where the objective is stationary in it (see `posteriors/stationary.py`); until
    then its `.grad` holds  d loss / d log scale = g . (draw - mean),  and the optimizer finds none. With
    scale_update="gradient", the paper's way, it holds the gradient of `raw_scale`, and the optimizer moves it.

    Args:
        model: Network whose trainable parameters become random: bare, compiled, or wrapped for data parallelism.
        init_scale: Initial standard deviation of q.
        deterministic: Names (or prefixes) of parameters that are learned as point estimates.
        seed: Seed for the random draws; taken from PyTorch's global generator if None.
        synchronize: Whether data-parallel processes use the same draws, as they must under DDP.
        scale_update: "closed-form" or "gradient".

    Raises:
        ValueError: If `scale_update` is something else, or an argument of `GaussianPosterior` is wrong.

    Example:
        >>> import torch
        >>> from deelbo import IsotropicPosterior
        >>> model = torch.nn.Linear(3, 1)
        >>> posterior = IsotropicPosterior(model, init_scale=0.1, seed=0)
        >>> posterior.num_params
        4
        >>> x, mean = torch.ones(1, 3), model.weight.clone()
        >>> with posterior.sample():  # the weights are a draw from q
        ...     model(x).sum().backward()
        ...     torch.equal(model.weight, mean)
        False
        >>> torch.equal(model.weight, mean)  # the mean again
        True
        >>> posterior.raw_scale.grad is None  # the block has added the gradient of the scale
        False
    """

    def __init__(
        self,
        model: nn.Module,
        init_scale: float = 1e-4,
        deterministic: Iterable[str] = (),
        seed: int | None = None,
        synchronize: bool = True,
        *,
        scale_update: str = "closed-form",
    ) -> None:
        super().__init__(model, init_scale, deterministic, seed, synchronize, scale_update=scale_update)
        for module in large_embeddings(unwrap(model), self._random):
            rows = sum(len(embedding.weight) for embedding in self._lazy)
            self._lazy.append(LazyEmbedding(module, rows, self._add_inner_product))

    def _make_scale(self, raw: float) -> None:
        first = next(iter(self._means.values()))
        dtype = torch.zeros((), dtype=first.dtype).real.dtype
        self.raw_scale = nn.Parameter(torch.tensor(raw, dtype=dtype, device=first.device))
        # Scale and scale^2, and the state of `raw_scale` that they belong to.
        self._kept_moments = torch.empty(2, dtype=scalar_dtype(first.device), device=first.device)
        self._moments_of: tuple[int, int] | None = None

    @property
    def scale_in_closed_form(self) -> bool:
        """Whether the scale is set by the objective; else the optimizer moves it."""
        return self.scale_update == "closed-form"

    @property
    def scale(self) -> Tensor:
        """Standard deviation sigma_q of every weight, a positive zero-dimensional tensor."""
        return F.softplus(self.raw_scale)

    @torch.no_grad()
    def set_scale(self, value: float) -> None:
        """Set the scale.

        Args:
            value: New standard deviation of every weight.

        Raises:
            ValueError: If the value is not between 1e-30 and 1e30.
        """
        self.raw_scale.fill_(inverse_softplus(value))

    def multiply_scale(self, factor: float) -> None:
        """Multiply the scale with a number."""
        self.set_scale(factor * self.typical_scale)

    def _moments(self) -> Tensor:
        """Return scale and scale^2 in float64 on the device of the weights, updated in place for CUDA graphs."""
        raw = self.raw_scale
        if (raw._version, raw.data_ptr()) != self._moments_of:  # changed by the optimizer, a saved state or the user
            with torch.inference_mode(False), torch.no_grad():
                wide = raw.to(self.device, scalar_dtype(self.device))
                sigma = F.softplus(wide).clamp_(min=torch.finfo(wide.dtype).tiny)
                self._set_moments(torch.stack([sigma, sigma.square()]))
        return self._kept_moments

    def _set_moments(self, moments: Tensor) -> None:
        if self._kept_moments.device == moments.device:
            self._kept_moments.copy_(moments)
        else:
            self._kept_moments = moments
        self._moments_of = self.raw_scale._version, self.raw_scale.data_ptr()

    def _sigma(self) -> Tensor:
        """Return the scale in float64, on the device of the weights, as at least the smallest positive number."""
        return self._moments()[0]

    @property
    def square(self) -> Tensor:
        """The squared scale, on the device of the weights."""
        return self._moments()[1]

    def get_extra_state(self) -> Tensor:
        """Return the base class's state, and scale and scale^2 to the last bit, which `raw_scale` has rounded."""
        return torch.cat([super().get_extra_state(), self._moments().to("cpu", torch.float64).view(torch.int64)])

    def set_extra_state(self, state: Tensor) -> None:
        """Restore what `get_extra_state` returned."""
        super().set_extra_state(state[:-2])
        self._set_moments(state[-2:].cpu().view(torch.float64).to(self.device, scalar_dtype(self.device)))

    def log_prob(self) -> Tensor:
        """Return log q(theta) = -D/2 log(2 pi scale^2) - |theta - mean|^2 / (2 scale^2) at the current weights."""
        variance = float(self.square)
        squares = 0.0
        if self._open is not None and not self._swapped:
            found = over_chunks(_squared_difference, *self._saved.chunks())
            squares = float(found if self._mesh is None else self._mesh.total(found))
            squares += sum(float(embedding.sum_of_squares()) for embedding in self._lazy)
            squares += variance * self.masters.squared_noise(self._open)
        log_density = -0.5 * (self.num_params * math.log(2 * math.pi * variance) + squares / variance)
        return torch.tensor(log_density, dtype=torch.float64)

    def log_det(self, group: PriorGroup) -> float:
        """Return log det S = F log scale^2 for a group of F weights."""
        return 2 * group.num_params * math.log(self._sigma())

    def trace(self, group: PriorGroup) -> float:
        """Return tr(Sigma_g^-1 S) = scale^2 tr(Sigma_g^-1)."""
        return float(self.square) * group.trace_inverse

    def unit_traces(self, groups: Sequence[PriorGroup]) -> list[float]:
        """Return tr(Sigma_g^-1) of each group."""
        return [group.trace_inverse for group in groups]

    def add_kl_gradient(self, groups: Iterable[PriorGroup], weight: float | Tensor) -> None:
        """Add weight * dKL/dscale to its gradient; dKL/dscale = scale * sum_g tr(Sigma_g^-1) / v_g - D / scale."""
        if self.scale_update == "closed-form":
            return
        scale = self._sigma()
        precision = sum((group.trace_inverse / group.variance_tensor.to(scale) for group in groups), 0 * scale)
        self._add_scale_gradient(weight * (scale * precision - self.num_params / scale))

    def _add_scale_gradient(self, value: Tensor) -> None:
        slope = torch.sigmoid(self.raw_scale.detach().double())  # d softplus(u) / du
        add_grad(self.raw_scale, (value * slope).to(self.raw_scale))

    @torch.no_grad()
    def update_scale(self, lines: VarianceLines, emphasis: float, loss_scale: float | Tensor) -> None:
        """Set the scale to its stationary value and drop its gradient; nothing if it is learned by gradient.

        Args:
            lines: The best prior variances as functions of the squared scale.
            emphasis: kappa N.
            loss_scale: Factor by which the gradients are multiplied at this time.
        """
        grad, self.raw_scale.grad = self.raw_scale.grad, None
        if grad is None:
            return
        sigma, square = self._moments()
        scaled = isinstance(loss_scale, Tensor) or loss_scale != 1
        slope = grad.to(square.device) / (square * loss_scale if scaled else square)
        lowest, highest = BOUNDS
        torch.clamp(self._stationary_square(square, slope, lines, emphasis), lowest**2, highest**2, out=square)
        torch.sqrt(square, out=sigma)
        torch.log(sigma.expm1(), out=self.raw_scale.detach())  # the inverse of softplus
        self._moments_of = self.raw_scale._version, self.raw_scale.data_ptr()

    def at_draw(self) -> AbstractContextManager[None]:
        """Return a context in which `means` of bfloat16 weights are the draw too, before rounding; for densities."""
        return nullcontext() if self._open is None else self.masters.at_draw(self._open, self._sigma())

    def _perturb(self, key: int, weights: list[Tensor], saved: list[Tensor], kept: bytearray) -> None:
        self.masters.draw(key, self._sigma())
        if not self._random:
            return
        if on_device(self._random[0]):
            self._perturb_vectors(key, weights, saved, kept)
            return
        scale, noise = float(self._sigma()), self._shard_noise or standard_normal

        def task(k: int, weight: Tensor, mean: Tensor) -> None:
            mean.copy_(weight)
            kept[k] = 1
            weight.add_(noise(weight, key, k), alpha=scale)

        over_chunks(task, weights, saved, workers=self.num_params > SMALL)

    @torch.no_grad()
    def _perturb_vectors(self, key: int, weights: list[Tensor], saved: list[Tensor], kept: bytearray) -> None:
        layout, scale = self._saved.layout(), self._sigma()
        vectors = layout.noise(key) if self._shard_noise is None else self._shard_noise.vectors(layout, key)
        noise = [vector.mul_(scale.to(vector.device)) for vector in vectors]
        with uninterrupted():
            torch._foreach_copy_(saved, weights)
            kept[:] = b"\1" * len(kept)
            torch._foreach_add_(weights, layout.split(noise))

    def _collect(self, sign: float, weights: list[Tensor], saved: list[Tensor], restore: bool) -> None:
        """Add the inner product of gradient and noise, which is d loss / d log scale, to the gradient of the scale.

        For a scale in closed form it is kept as it is; by gradient, it becomes d loss / d raw_scale.
        """
        if self._random and on_device(self._random[0]):
            product = self._inner_product_of_vectors(weights, restore)
        else:
            product = self._inner_product(weights, saved, restore).to(self.device)
        if self._mesh is not None:
            product = self._product_of_shards(product)
        for embedding in self._lazy:
            if embedding.open:
                product = product + embedding.inner_product()
        if self._open is not None and self.masters.weights:
            product = product + self.masters.inner_product(self._open, self._sigma()).to(product.device)
        self._add_inner_product(sign * product if sign != 1 else product)

    def _add_inner_product(self, product: Tensor) -> None:
        """Add <gradient, noise>, or a part of it, to the gradient of the scale."""
        if self.scale_update == "gradient":
            self._add_scale_gradient(product / self._sigma())
        else:
            add_grad(self.raw_scale, product.to(self.raw_scale))

    def _product_of_shards(self, product: Tensor) -> Tensor:
        """Return a number whose average over the processes is the inner product of the whole gradient and noise.

        FSDP has averaged the gradients in the shards, so the inner product is the sum over shards; those that await its
        average (`set_requires_gradient_sync(False)`) are of whole weights, for which the noise is drawn again.
        """
        assert self._mesh is not None
        assert self._shard_noise is not None
        assert self.key is not None
        product = self._mesh.shards * product
        if unreduced := self._unreduced_gradients():
            product = product + self._sigma() * self._shard_noise.product_with(unreduced, self.key).to(product)
        return product

    def _inner_product(self, weights: list[Tensor], saved: list[Tensor], restore: bool) -> Tensor:
        def task(k: int, weight: Tensor, mean: Tensor, grad: Tensor | None) -> Tensor | None:
            product = None
            if grad is not None:
                noise = torch.sub(weight, mean, out=weight if restore else buffer(weight))
                product = torch.dot(noise, grad)
            if restore:
                weight.copy_(mean)
            return product

        return over_chunks(task, weights, saved, self._grads())

    @torch.no_grad()
    def _inner_product_of_vectors(self, weights: list[Tensor], restore: bool) -> Tensor:
        layout = self._saved.layout()
        grads = [torch.zeros_like(w) if g is None else g for g, w in zip(self._grads(), weights, strict=True)]
        noise = [w.sub_(mean) for w, mean in zip(layout.gather(weights), self._saved.vectors, strict=True)]
        products = [torch.dot(eps, g) for eps, g in zip(noise, layout.gather(grads), strict=True)]
        if restore:
            self._saved.restore()
        return sum((product.to(products[0]) for product in products[1:]), products[0])


def _squared_difference(k: int, weight: Tensor, mean: Tensor) -> Tensor:
    return sum_of_squares(torch.sub(weight, mean, out=buffer(weight)))
