"""The mean-field posterior: one scale for every weight, so twice the parameters; for comparisons."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deelbo._noise import standard_normal
from deelbo._weight_passes import (
    SMALL,
    ChunkCache,
    aligned,
    buffer,
    grad_chunks,
    over_chunks,
    sum_of_squares,
)
from deelbo.posteriors.base import POSTERIORS, GaussianPosterior
from deelbo.posteriors.stationary import VarianceLines

if TYPE_CHECKING:
    from deelbo.priors.gaussian import PriorGroup


@POSTERIORS.register("diagonal", "a scale for every weight")
class DiagonalPosterior(GaussianPosterior):
    r"""q(theta) = N(theta | mean, diag(scale^2)) with one learned scale for each weight (mean field).

    It has the interface of `IsotropicPosterior`, but `scale` is a vector of D scales, in the order of `means`.
    See `GaussianPosterior` for the arguments. With scale_update="closed-form" the objective sets the geometric mean of
    the scales as it sets an isotropic posterior's scale, and the optimizer learns their ratios; each has a gradient of
    about 1/D, which Adam can follow and SGD cannot.

    Example:
        >>> import torch
        >>> from deelbo import DiagonalPosterior
        >>> model = torch.nn.Linear(3, 2)
        >>> posterior = DiagonalPosterior(model, init_scale=0.1)
        >>> posterior.scale.shape  # 3 * 2 weights and 2 biases
        torch.Size([8])
        >>> sum(p.numel() for p in posterior.parameters())  # means and scales
        16
    """

    numbers_per_weight = 2

    def _make_scale(self, raw: float) -> None:
        if self._mesh is not None:
            raise ValueError("DiagonalPosterior does not support sharded weights (FSDP2): use IsotropicPosterior")
        for name, parameter in self._own.items():
            if parameter.dtype == torch.bfloat16:
                raise ValueError(f'parameter "{name}" is bfloat16: use IsotropicPosterior, or float32 weights')
            if parameter.is_complex():
                raise ValueError(f'parameter "{name}" is complex: use IsotropicPosterior, or real weights')
        self.raw_scale = nn.ParameterList(torch.full_like(p, raw, requires_grad=False) for p in self._random)
        self._raw_cache = ChunkCache()

    @property
    def scale(self) -> Tensor:
        """Standard deviations sigma_q of all weights, a positive vector of length D."""
        return torch.cat([F.softplus(raw).flatten() for raw in self.raw_scale])

    @property
    def scales(self) -> dict[str, Tensor]:
        """Copies of the standard deviations by the name of the weight."""
        return {name: F.softplus(raw.detach()) for name, raw in zip(self._means, self.raw_scale, strict=True)}

    @torch.no_grad()
    def set_scales(self, scales: Mapping[str, Tensor]) -> None:
        """Set the standard deviations.

        Args:
            scales: Positive numbers for every weight, by its name, in the weight's shape.

        Raises:
            ValueError: If a weight has none, or of another shape.
        """
        for (name, weight), raw in zip(self._means.items(), self.raw_scale, strict=True):
            if name not in scales or scales[name].shape != weight.shape:
                raise ValueError(f'there is no scale of the shape {list(weight.shape)} for the weight "{name}"')
            wide = scales[name].to(raw.device, torch.float64)
            raw.copy_(wide + torch.log(-torch.expm1(-wide)))  # the inverse of softplus

    @property
    def square(self) -> Tensor:
        """The square of the geometric mean of the scales."""

        def task(k: int, raw: Tensor) -> Tensor:
            return _softplus(raw).log_().sum(dtype=torch.float64)

        return torch.exp(2 * over_chunks(task, self._raw()) / self.num_params).to(self.device)

    def multiply_scale(self, factor: float) -> None:
        """Multiply every scale with a number."""
        self.set_scales({name: factor * scale for name, scale in self.scales.items()})

    def log_prob(self) -> Tensor:
        """Return log q(theta) at the current weights: at a draw inside `sample()`, else at the mean."""
        drawn = self.sampling and not self._swapped

        def task(k: int, weight: Tensor, mean: Tensor, raw: Tensor) -> Tensor:
            scale = _softplus(raw)
            value = scale.log().sum(dtype=torch.float64)
            return value + 0.5 * sum_of_squares((weight - mean).div_(scale)) if drawn else value

        self._check_weights()
        value = over_chunks(task, *self._saved.chunks(), self._raw())
        return -value - 0.5 * self.num_params * math.log(2 * math.pi)

    def log_det(self, group: PriorGroup) -> float:
        """Return log det S = sum_i log scale_i^2 over the weights of the group."""

        def task(k: int, raw: Tensor) -> Tensor:
            return 2 * _softplus(raw).log_().sum(dtype=torch.float64)

        return float(over_chunks(task, self._raw(group.weights)))

    def trace(self, group: PriorGroup) -> float:
        """Return tr(Sigma_g^-1 S) = sum_i scale_i^2 (Sigma_g^-1)_ii over the weights of the group."""

        def task(k: int, raw: Tensor, inverse: Tensor | None) -> Tensor:
            squares = _softplus(raw).square_()
            return (squares if inverse is None else squares.mul_(inverse)).sum(dtype=torch.float64)

        return float(over_chunks(task, self._raw(group.weights), group.inverse_diagonal()))

    def unit_traces(self, groups: Sequence[PriorGroup]) -> list[float]:
        """Return tr(Sigma_g^-1 S) / typical_scale^2 of each group."""
        square = float(self.square)
        return [self.trace(group) / square for group in groups]

    def update_scale(self, lines: VarianceLines, emphasis: float, loss_scale: float | Tensor) -> None:
        """Multiply all scales with the number at which the objective is stationary; nothing if learned by gradient.

        The slope of the loss in typical_scale^2 is h = <gradient, noise> / typical_scale^2, as in an isotropic
        posterior: with theta = mean + typical_scale * r * eps, the ratios r only change the noise.

        Args:
            lines: The best prior variances as functions of the squared scale.
            emphasis: kappa N.
            loss_scale: Factor by which the gradients are multiplied at this time.
        """

        def task(k: int, raw: Tensor, grad: Tensor) -> Tensor:  # <gradient, noise>, from gradient * eps * sigmoid(raw)
            return (grad.double() * _softplus(raw) / torch.sigmoid(raw)).sum()

        inner_product = over_chunks(task, self._raw(), grad_chunks(list(self.raw_scale), create=True))
        square = self.square
        slope = inner_product.to(square) / (square * loss_scale)
        if math.isfinite(slope):  # else a GradScaler will skip this step
            self.multiply_scale(math.sqrt(self._stationary_square(square, slope, lines, emphasis) / square))

    def add_kl_gradient(self, groups: Iterable[PriorGroup], weight: float | Tensor) -> None:
        """Add weight * dKL/dscale to its gradient; dKL/dscale_i = scale_i (Sigma_g^-1)_ii / v_g - 1 / scale_i."""
        weight = float(weight)
        for group in groups:
            variance = group.variance

            def task(k: int, raw: Tensor, grad: Tensor, inverse: Tensor | None, variance: float = variance) -> None:
                scale = _softplus(raw)
                slope = scale / variance if inverse is None else scale * inverse / variance
                grad.addcmul_(slope.sub_(scale.reciprocal_()), torch.sigmoid(raw), value=weight)

            grads = grad_chunks(self._raw_of(group.weights), create=True)
            over_chunks(task, self._raw(group.weights), grads, group.inverse_diagonal())

    def _raw(self, parameters: Sequence[Tensor] | None = None) -> list[Tensor]:
        """Return the chunks of the unconstrained scales that belong to these parameters, or to all of them if None."""
        for parameter, raw in zip(self._random, self.raw_scale, strict=True):
            if raw.device != parameter.device or raw.dtype != parameter.dtype or not aligned(raw, parameter):
                raw.data = torch.empty_like(parameter, requires_grad=False).copy_(raw)
        if parameters is None:
            return self._raw_cache(list(self.raw_scale))
        return ChunkCache()(self._raw_of(parameters))

    def _raw_of(self, parameters: Sequence[Tensor]) -> list[Tensor]:
        raws = {id(p): raw for p, raw in zip(self._random, self.raw_scale, strict=True)}
        return [raws[id(p)] for p in parameters]

    def _perturb(self, key: int, weights: list[Tensor], saved: list[Tensor], kept: bytearray) -> None:
        def task(k: int, weight: Tensor, mean: Tensor, raw: Tensor) -> None:
            mean.copy_(weight)
            kept[k] = 1
            weight.addcmul_(standard_normal(weight, key, k), _softplus(raw))

        over_chunks(task, weights, saved, self._raw(), workers=self.num_params > SMALL)

    def _collect(self, sign: float, weights: list[Tensor], saved: list[Tensor], restore: bool) -> None:
        def task(k: int, weight: Tensor, mean: Tensor, raw: Tensor, raw_grad: Tensor, grad: Tensor | None) -> None:
            if grad is not None:
                eps = torch.sub(weight, mean, out=buffer(weight)).div_(_softplus(raw))
                raw_grad.addcmul_(eps.mul_(grad), torch.sigmoid(raw), value=sign)
            if restore:
                weight.copy_(mean)

        raw_grads = grad_chunks(list(self.raw_scale), create=True)
        over_chunks(task, weights, saved, self._raw(), raw_grads, self._grads())


def _softplus(raw: Tensor) -> Tensor:
    """Return softplus(raw), clamped to the smallest positive float so that 1/scale exists."""
    return F.softplus(raw).clamp_(min=torch.finfo(raw.dtype).tiny)
