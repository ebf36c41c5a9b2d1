"""The isotropic posterior of the paper: one scale for all weights."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deelbo._weight_passes import SMALL, add_grad, buffer, over_chunks, standard_normal, sum_of_squares
from deelbo.posteriors.base import POSTERIORS, GaussianPosterior, inverse_softplus
from deelbo.posteriors.stationary import ScaleTerm

if TYPE_CHECKING:
    from deelbo.priors.gaussian import PriorGroup


@POSTERIORS.register("isotropic", "one scale for all weights")
class IsotropicPosterior(GaussianPosterior):
    r"""q(theta) = N(theta | mean, scale^2 I_D) over every parameter with `requires_grad`.

    With theta = mean + scale * eps and eps ~ N(0, I), the reparameterised gradients of a loss are  d loss / d mean = g
    and  d loss / d scale = g . eps,  where g is the gradient at the draw. The scale is stored through softplus, and
    `objective.backward()` sets it to where the objective is stationary in it (see `posteriors/stationary.py`); the
    optimizer then finds no gradient of it. With scale_update="gradient", the paper's way, the optimizer moves it.

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

    def _make_scale(self, raw: float) -> None:
        first = self._random[0]
        dtype = torch.zeros((), dtype=first.dtype).real.dtype
        self.raw_scale = nn.Parameter(torch.tensor(raw, dtype=dtype, device=first.device))

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

    @property
    def typical_scale(self) -> float:
        """The scale as a number."""
        return self.scale.item()

    def multiply_scale(self, factor: float) -> None:
        """Multiply the scale with a number."""
        self.set_scale(factor * self.typical_scale)

    def _sigma(self) -> float:
        """Return the scale in float64, as at least the smallest positive number so that 1/scale exists."""
        return max(float(F.softplus(self.raw_scale.detach().double())), math.ulp(0.0))

    def log_prob(self) -> Tensor:
        """Return log q(theta) = -D/2 log(2 pi scale^2) - |theta - mean|^2 / (2 scale^2) at the current weights."""
        variance = self._sigma() ** 2
        squares = 0.0
        if self.sampling and not self._swapped:
            weights, saved = self._weight_cache(self._random), self._saved_cache(self._saved)
            squares = float(over_chunks(_squared_difference, weights, saved))
        log_density = -0.5 * (self.num_params * math.log(2 * math.pi * variance) + squares / variance)
        return torch.tensor(log_density, dtype=torch.float64)

    def log_det(self, group: PriorGroup) -> float:
        """Return log det S = F log scale^2 for a group of F weights."""
        return 2 * group.num_params * math.log(self._sigma())

    def trace(self, group: PriorGroup) -> float:
        """Return tr(Sigma_g^-1 S) = scale^2 tr(Sigma_g^-1)."""
        return self._sigma() ** 2 * group.trace_inverse

    def unit_trace(self, group: PriorGroup) -> float:
        """Return tr(Sigma_g^-1)."""
        return group.trace_inverse

    def add_kl_gradient(self, groups: Iterable[PriorGroup], weight: float) -> None:
        """Add weight * dKL/dscale to its gradient; dKL/dscale = scale * sum_g tr(Sigma_g^-1) / v_g - D / scale."""
        if self.scale_update == "closed-form":
            return
        scale = self._sigma()
        precision = sum(group.trace_inverse / group.variance for group in groups)
        self._add_scale_gradient(weight * (scale * precision - self.num_params / scale))

    def _add_scale_gradient(self, value: float) -> None:
        slope = torch.sigmoid(self.raw_scale.detach().double())  # d softplus(u) / du
        add_grad(self.raw_scale, (value * slope).to(self.raw_scale.dtype))

    def update_scale(self, terms: Sequence[ScaleTerm], emphasis: float, loss_scale: float) -> None:
        """Set the scale to its stationary value and drop its gradient; nothing if it is learned by gradient.

        Args:
            terms: What each group of the prior contributes.
            emphasis: kappa N.
            loss_scale: Factor by which the gradients are multiplied at this time.
        """
        if self.scale_update == "gradient":
            return
        grad, self.raw_scale.grad = self.raw_scale.grad, None
        scale, slope = self._sigma(), torch.sigmoid(self.raw_scale.detach().double())
        trace = float(grad.double() / (slope * scale * loss_scale)) if grad is not None else math.nan
        if not math.isfinite(trace):  # a GradScaler will skip this step
            return
        self.set_scale(self._stationary_scale(trace, scale, terms, emphasis))

    def _perturb(self, key: int, weights: list[Tensor], saved: list[Tensor], kept: bytearray) -> None:
        scale = self._sigma()

        def task(k: int, weight: Tensor, mean: Tensor) -> None:
            mean.copy_(weight)
            kept[k] = 1
            weight.add_(standard_normal(weight, key, k), alpha=scale)

        over_chunks(task, weights, saved, workers=self.num_params > SMALL)

    def _collect(self, sign: float, weights: list[Tensor], saved: list[Tensor], restore: bool) -> None:
        def task(k: int, weight: Tensor, mean: Tensor, grad: Tensor | None) -> Tensor | None:
            product = None
            if grad is not None:
                noise = torch.sub(weight, mean, out=weight if restore else buffer(weight))
                product = torch.dot(noise, grad)
            if restore:
                weight.copy_(mean)
            return product

        inner_product = float(over_chunks(task, weights, saved, self._grads()))
        self._add_scale_gradient(sign * inner_product / self._sigma())


def _squared_difference(k: int, weight: Tensor, mean: Tensor) -> Tensor:
    return sum_of_squares(torch.sub(weight, mean, out=buffer(weight)))
