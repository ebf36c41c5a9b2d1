"""The paper's algorithm for RFF regression: Adam on Monte Carlo estimates, at four learning rates."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from deelbo.rff.problem import Problem, split

RATES = (0.1, 0.01, 0.001, 0.0001)  # learning rates
DRAWS = 5  # Monte Carlo samples per step in the authors' demo; the paper's text says 1


@dataclass
class Ascent:
    """Result of a run of Adam.

    Args:
        logs: Log hyperparameters.
        mean: Mean of q, [R, T].
        scale: Standard deviation of q.
        value: Objective, without Monte Carlo error.
    """

    logs: Tensor
    mean: Tensor
    scale: float
    value: float


def ascend(
    problem: Problem,
    ard: bool,
    floor: float,
    *,
    steps: int,
    seed: int,
    progress: Callable[[float], None],
    draws: int = DRAWS,
) -> Ascent:
    """Return the best of runs at four learning rates, compared by the objective without Monte Carlo error.

    Args:
        problem: Objective to maximise: "de-elbo" or "elbo".
        ard: Whether each input has its own lengthscale.
        floor: Lower bound of the noise.
        steps: Number of Adam steps of each run.
        seed: Seed for the random draws of the weights.
        progress: Called at each step with the estimated objective, an average over rows.
        draws: Number of draws of the weights in a step.

    Raises:
        ValueError: If all runs diverge.
    """
    shared: dict[str, Any] = {"steps": steps, "seed": seed, "progress": progress, "draws": draws}
    runs = [_run(problem, ard, floor, rate=rate, **shared) for rate in RATES]
    ended = [run for run in runs if math.isfinite(run.value)]
    if not ended:
        raise ValueError("Adam diverged at every learning rate: scale inputs and targets to a spread of about 1")
    return max(ended, key=lambda run: run.value)


def _run(
    problem: Problem,
    ard: bool,
    floor: float,
    *,
    steps: int,
    rate: float,
    seed: int,
    progress: Callable[[float], None],
    draws: int,
) -> Ascent:
    generator = torch.Generator(problem.A.device).manual_seed(seed)
    number, size, outputs = problem.sizes
    inputs = problem.x.shape[1] if ard else 1
    one = math.log(math.expm1(1.0))  # all start at softplus(one) = 1
    raw = torch.full((inputs + 2,), one, dtype=torch.float64, requires_grad=True)
    raw_scale = torch.tensor(one, dtype=problem.A.dtype, device=problem.A.device, requires_grad=True)
    mean = torch.zeros(size, outputs, dtype=problem.A.dtype, device=problem.A.device, requires_grad=True)
    optimizer = torch.optim.Adam([mean, raw_scale, raw], lr=rate)

    def logs() -> Tensor:
        positive = F.softplus(raw)
        return torch.cat([positive[:-1], positive[-1:] + floor]).log()

    for _ in range(steps):
        optimizer.zero_grad()
        phi, noise, scale = problem.features(problem.x, logs()), split(logs())[2].to(mean), F.softplus(raw_scale)
        drawn = torch.randn(draws, size, outputs, generator=generator, dtype=mean.dtype, device=mean.device)
        residuals = problem.targets - phi @ (mean + scale * drawn)
        fit = -0.5 * number * outputs * (2 * math.pi * noise**2).log() - residuals.square().sum() / (
            2 * draws * noise**2
        )
        objective = problem.kappa * fit - _kl(mean, scale)
        (-objective / problem.unit).backward()
        optimizer.step()
        progress(objective.item() / problem.unit)
    with torch.no_grad():
        scale = F.softplus(raw_scale)
        return Ascent(logs().detach(), mean.detach().double(), float(scale), _value(problem, logs(), mean, scale))


def _kl(mean: Tensor, scale: Tensor) -> Tensor:
    """Return KL(q || p) = KL(N(mean, scale^2 I) || N(0, I))."""
    return 0.5 * (mean.square().sum() + mean.numel() * (scale**2 - 1 - 2 * scale.log()))


def _value(problem: Problem, logs: Tensor, mean: Tensor, scale: Tensor) -> float:
    """Return J, with the expected squared error in closed form: |y - Phi m|^2 + T scale^2 tr(Phi^T Phi)."""
    number, _, outputs = problem.sizes
    phi, noise = problem.features(problem.x, logs), split(logs)[2].to(mean)
    squares = (problem.targets - phi @ mean).square().sum() + outputs * scale**2 * phi.square().sum()
    fit = -0.5 * number * outputs * (2 * math.pi * noise**2).log() - squares / (2 * noise**2)
    return float(problem.kappa * fit - _kl(mean, scale))
