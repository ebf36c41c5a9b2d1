r"""The scale of an isotropic posterior in closed form: where the objective is stationary in it.

Training minimises  E[NLL](mean, s) + KL / (kappa N)  with s = scale^2. By Price's theorem the first term's slope in s
is h / 2, where h = E[tr Hessian] = E<gradient, noise> / s: known from every step, without another pass. The best prior
variance of a group is  v_g(s) = (q_g + s t_g) / D_g,  where q_g = d^T Sigma_g^-1 d for the move d of the mean from the
prior's, and t_g = tr(Sigma_g^-1); that of other groups is fixed. The KL's slope is  1/2 [ sum_g t_g / v_g(s) - D / s ].
Together, times 2 kappa N s:

    kappa N h s  +  sum_g s t_g / v_g(s)  =  D,

whose left side grows with s. All of it is computed with tensors on the device of the weights, so that a GPU never waits
for the host.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from deelbo._weight_passes import constants, scalar_dtype

GROWTH, SHRINKAGE = 1.2, 2.0  # largest factors by which one step changes the scale, because h is noisy
OUTLIER = 10.0  # largest value of h in a step, in units of its usual size
RECENT = 8  # larger values forget faster: the average of h is over about the last 1 / (1 + RECENT) of all steps
CELLS = 4096  # in which the solution is looked for at once, and then interpolated: an error of 1e-8


@dataclass(frozen=True)
class VarianceLines:
    """The prior variances as functions of s = scale^2: v_g(s) = start_g + slope_g s.

    Args:
        start: q_g / D_g of a learned variance, v_g of a fixed one.
        slope: t_g / D_g of a learned variance, 0 of a fixed one.
        trace_inverse: t_g, the trace of the inverse covariance matrix.
        num_params: D, the number of weights of all groups.
    """

    start: Tensor
    slope: Tensor
    trace_inverse: Tensor
    num_params: int

    def at(self, square: Tensor) -> Tensor:
        """Return v_g at s = square, for all groups."""
        return torch.addcmul(self.start, square, self.slope)


def stationary_square(square: Tensor, lines: VarianceLines, curvature: Tensor, rounds: int = 1) -> Tensor:
    """Return s = scale^2 at which the objective is stationary, at most `GROWTH`^2 above and `SHRINKAGE`^2 below.

    Args:
        square: The present value of s.
        lines: The prior variances as functions of s.
        curvature: kappa N h; if it is negative and outweighs the prior, the result is the largest value.
        rounds: How often the search is repeated around its result, for a solution that may be far away.

    Example:
        >>> import torch
        >>> from deelbo.posteriors.stationary import VarianceLines, stationary_square
        >>> ten = torch.tensor([10.0], dtype=torch.float64)  # ten weights with a prior N(0, 0.5 I)
        >>> fixed = VarianceLines(start=0.05 * ten, slope=0 * ten, trace_inverse=ten, num_params=10)
        >>> square = stationary_square(0.02 * ten[0], fixed, curvature=3 * ten[0])
        >>> print(f"{1 / square.item():.5f}")  # posterior precision = prior's (2) + curvature of a weight (3)
        5.00000
    """
    for _ in range(rounds):
        table = square.new_empty(2, CELLS + 1)  # left minus right side of the equation, and s
        minus_right, zero = constants([-lines.num_params], square.device), constants([0.0], square.device)[0]
        torch.mul(square, _factors(square.device, square.dtype), out=table[1])
        column = table[1, :, None]
        torch.addmv(minus_right, column / lines.at(column), lines.trace_inverse, out=table[0])
        table[0].addcmul_(curvature, table[1])
        # The cell in which the left side reaches D; the first or last one if it is not in between.
        cell = torch.searchsorted(table[0, 1:-1], zero)
        values, nodes = table.unfold(1, 2, 1).index_select(1, cell[None])[:, 0]
        share = (values[0] / (values[0] - values[1])).clamp_(0, 1)
        square = torch.lerp(nodes[0], nodes[1], share)
    return square


@functools.cache
def _factors(device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return the values of s to look at, in units of the present one."""
    ends = -2 * math.log(SHRINKAGE), 2 * math.log(GROWTH)
    with torch.inference_mode(False):
        return torch.linspace(*ends, CELLS + 1, dtype=torch.float64).exp().to(device, dtype)


class Curvature:
    """Average of h over the recent steps, the more steps the longer the training: there is no rate to choose.

    Args:
        average: The average.
        magnitude: Average of the absolute values.
        steps: Number of values so far.
    """

    def __init__(self, average: float = 0.0, magnitude: float = 0.0, steps: int = 0) -> None:
        self._averages = torch.tensor([average, magnitude], dtype=torch.float64)
        self._clock = torch.tensor(float(steps + RECENT), dtype=torch.float64)

    @property
    def average(self) -> Tensor:
        """The average."""
        return self._averages[0]

    def state(self) -> tuple[float, float, int]:
        """Return average, magnitude and number of values, the arguments of the constructor."""
        average, magnitude = self._averages.tolist()
        return average, magnitude, int(self._clock) - RECENT

    def add(self, value: Tensor) -> Tensor:
        """Add the value of a step (polynomial averaging; Shamir and Zhang, 2013), unless it is infinite or undefined.

        A value that is far larger than usual, from a batch with an exploding gradient, counts only as `OUTLIER` times
        the usual one: the gradient of the weights is clipped too.

        Args:
            value: h of the step.

        Returns:
            Whether the value was finite.
        """
        if self._averages.device != value.device:
            dtype = scalar_dtype(value.device)
            self._averages, self._clock = (t.to(value.device, dtype) for t in (self._averages, self._clock))
        size = value.abs()
        finite = size < math.inf  # not in a step that a GradScaler will skip
        self._clock.add_(finite)
        usual = (OUTLIER * self._averages[1]).masked_fill(self._clock <= 2 * RECENT, math.inf)
        both = torch.empty_like(self._averages)
        size = torch.minimum(size, usual, out=both[1])
        torch.copysign(size, value, out=both[0])
        values = torch.where(finite, both, self._averages)
        self._averages.lerp_(values, constants([1 + RECENT], value.device)[0] / self._clock)
        return finite
