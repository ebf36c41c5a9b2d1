"""The mean-field posterior: one scale for every weight, so twice the parameters; for comparisons."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deelbo._weight_passes import (
    SMALL,
    ChunkCache,
    aligned,
    buffer,
    grad_chunks,
    over_chunks,
    standard_normal,
    sum_of_squares,
)
from deelbo.posteriors.base import GaussianPosterior

if TYPE_CHECKING:
    from deelbo.priors.gaussian import PriorGroup


class DiagonalPosterior(GaussianPosterior):
    r"""q(theta) = N(theta | mean, diag(scale^2)) with one learned scale for each weight (mean field).

    It has the interface of `IsotropicPosterior`, but `scale` is a vector of D scales, in the order of `means`.
    See `GaussianPosterior` for the arguments.

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

    def _make_scale(self, raw: float) -> None:
        for name, parameter in self._means.items():
            if parameter.is_complex():
                raise ValueError(f'parameter "{name}" is complex: use IsotropicPosterior, or real weights')
        self.raw_scale = nn.ParameterList(torch.full_like(p, raw, requires_grad=False) for p in self._random)
        self._raw_cache = ChunkCache()

    @property
    def scale(self) -> Tensor:
        """Standard deviations sigma_q of all weights, a positive vector of length D."""
        return torch.cat([F.softplus(raw).flatten() for raw in self.raw_scale])

    def log_prob(self) -> Tensor:
        """Return log q(theta) at the current weights: at a draw inside `sample()`, else at the mean."""
        drawn = self.sampling and not self._swapped

        def task(k: int, weight: Tensor, mean: Tensor, raw: Tensor) -> Tensor:
            scale = _softplus(raw)
            value = scale.log().sum(dtype=torch.float64)
            return value + 0.5 * sum_of_squares((weight - mean).div_(scale)) if drawn else value

        weights = self._weights()
        value = over_chunks(task, weights, self._saved_cache(self._saved), self._raw())
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

    def add_kl_gradient(self, groups: Iterable[PriorGroup], weight: float) -> None:
        """Add weight * dKL/dscale to its gradient; dKL/dscale_i = scale_i (Sigma_g^-1)_ii / v_g - 1 / scale_i."""
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
