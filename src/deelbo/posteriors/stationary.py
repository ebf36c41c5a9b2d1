r"""The scale of an isotropic posterior in closed form: where the objective is stationary in it.

Training minimises  E[NLL](mean, s) + KL / (kappa N)  with s = scale^2. By Price's theorem the first term's slope in s
is h / 2, where h = E[tr Hessian] = E<gradient, noise> / s: known from every step, without another pass. With the prior
variances at their optimum, v_g = (q_g + s t_g) / D_g, where q_g = d^T Sigma_g^-1 d for the move d of the mean from the
prior's, and t_g = tr(Sigma_g^-1), the KL's slope is  1/2 [ sum_g D_g t_g / (q_g + s t_g) - D / s ]. Together, times
2 kappa N s:

    kappa N h s  +  sum_g D_g s t_g / (q_g + s t_g)  =  D,

whose left side grows with s. A group of fixed variance v_g adds s t_g / v_g instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

GROWTH, SHRINKAGE = 1.2, 2.0  # largest factors by which one step changes the scale, because h is noisy
OUTLIER = 10.0  # largest value of h in a step, in units of its usual size
RECENT = 8  # larger values forget faster: the average of h is over about the last 1 / (1 + RECENT) of all steps


@dataclass(frozen=True)
class ScaleTerm:
    """What one group of the prior contributes to the equation.

    Args:
        num_params: D_g, the number of weights.
        trace_inverse: t_g, the trace of the inverse covariance matrix.
        quadratic: q_g, the squared distance of the mean from the prior's; None for a group of fixed variance.
        variance: v_g, the prior variance.
    """

    num_params: int
    trace_inverse: float
    quadratic: float | None
    variance: float

    def at(self, s: float) -> float:
        """Return the term at scale^2 = s."""
        if self.quadratic is None:
            return s * self.trace_inverse / self.variance
        return self.num_params * s * self.trace_inverse / (self.quadratic + s * self.trace_inverse)


def stationary_scale(terms: Sequence[ScaleTerm], curvature: float, lowest: float, highest: float) -> float:
    """Return the scale between two bounds at which the objective is stationary, or the nearer bound.

    Args:
        terms: What each group of the prior contributes.
        curvature: kappa N h.
        lowest: Smallest scale.
        highest: Largest scale; the result if the curvature is negative and outweighs the prior.

    Example:
        >>> from deelbo.posteriors.stationary import ScaleTerm, stationary_scale
        >>> fixed = ScaleTerm(num_params=10, trace_inverse=10.0, quadratic=None, variance=0.5)  # a prior N(0, 0.5 I)
        >>> scale = stationary_scale([fixed], curvature=30.0, lowest=1e-6, highest=1e3)
        >>> abs(1 / scale**2 - (1 / 0.5 + 30 / 10)) < 1e-6  # posterior precision = prior's + curvature of a weight
        True
    """
    num_params = sum(term.num_params for term in terms)

    def excess(log_scale: float) -> float:
        s = math.exp(2 * log_scale)
        return curvature * s + sum(term.at(s) for term in terms) - num_params

    low, high = math.log(lowest), math.log(highest)
    if excess(high) <= 0:
        return highest
    if excess(low) >= 0:
        return lowest
    while high - low > 1e-9:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if excess(middle) < 0 else (low, middle)
    return math.exp(0.5 * (low + high))


@dataclass
class Curvature:
    """Average of h over the recent steps, the more steps the longer the training: there is no rate to choose.

    Args:
        average: The average.
        magnitude: Average of the absolute values.
        steps: Number of values so far.
    """

    average: float = 0.0
    magnitude: float = 0.0
    steps: int = 0

    def add(self, value: float) -> None:
        """Add the value of a step (polynomial averaging; Shamir and Zhang, 2013).

        A value that is far larger than usual, from a batch with an exploding gradient, counts only as `OUTLIER` times
        the usual one: the gradient of the weights is clipped too.
        """
        self.steps += 1
        if self.steps > RECENT:
            value = math.copysign(min(abs(value), OUTLIER * self.magnitude), value)
        self.magnitude += (1 + RECENT) / (self.steps + RECENT) * (abs(value) - self.magnitude)
        self.average += (1 + RECENT) / (self.steps + RECENT) * (value - self.average)
