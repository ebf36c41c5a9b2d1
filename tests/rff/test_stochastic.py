"""Adam on Monte Carlo estimates, the paper's algorithm."""

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from deelbo.rff import RFFRegressor
from deelbo.rff.problem import Problem
from deelbo.rff.stochastic import _value, ascend
from shared.regression import toy


@pytest.mark.slow
def test_adam_approaches_but_does_not_pass_l_bfgs():
    x, y = toy()
    fits = {
        solver: RFFRegressor(64, objective="de-elbo", solver=solver, steps=500, normalize_y=False, random_state=0).fit(
            x, y
        )
        for solver in ("adam", "l-bfgs")
    }
    adam, exact = fits["adam"], fits["l-bfgs"]
    assert exact.objective_ - 15 < adam.objective_ <= exact.objective_
    assert adam.noise_ == pytest.approx(exact.noise_, rel=0.3)
    mean, std = adam.predict(x, return_std=True)
    assert abs(mean - y).mean() < 0.2
    assert (std > adam.noise_).all()


def test_its_objective_is_the_definition():
    generator = torch.Generator().manual_seed(0)
    x, y, A, b, mean = (
        torch.randn(*s, dtype=torch.float64, generator=generator) for s in ((6, 1), (6, 2), (1, 5), (5,), (5, 2))
    )
    problem, scale = Problem(x, y, A, b, "de-elbo", 2.5), torch.tensor(0.3, dtype=torch.float64)
    logs = torch.tensor([0.5, 1.5, 0.4], dtype=torch.float64).log()
    phi = problem.features(x, logs)
    draws = mean + scale * torch.randn(200_000, 5, 2, dtype=torch.float64, generator=generator)
    fit = Normal(phi @ draws, 0.4).log_prob(y).sum((1, 2)).mean()
    slow = 2.5 * fit - kl_divergence(Normal(mean, scale), Normal(torch.zeros_like(mean), 1.0)).sum()
    assert _value(problem, logs, mean, scale) == pytest.approx(slow.item(), rel=0.01)


def test_the_same_seed_gives_the_same_run():
    x, y = (torch.from_numpy(part) for part in toy())
    A, b = torch.ones(1, 4, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
    problem = Problem(x, y[:, None], A, b, "elbo", 1.0)
    seen = []
    first, second = (ascend(problem, False, 1e-3, steps=5, seed=7, progress=seen.append) for _ in range(2))
    assert first.value == second.value
    assert len(seen) == 2 * 4 * 5


@pytest.mark.parametrize("draws", [1, 5])
def test_the_number_of_draws_in_a_step(draws):
    """The first estimate of the objective, at lengthscale, outputscale, noise and scale 1 and mean 0, written out."""
    generator = torch.Generator().manual_seed(0)
    x, y, A, b = (torch.randn(*s, dtype=torch.float64, generator=generator) for s in ((6, 1), (6, 1), (1, 5), (5,)))
    problem, seen = Problem(x, y, A, b, "de-elbo", 2.5), []
    ascend(problem, False, 0.0, steps=1, seed=7, progress=seen.append, draws=draws)
    weights = torch.randn(draws, 5, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(7))
    phi = (2 / 5) ** 0.5 * torch.cos(x @ A + b)
    fit = Normal(phi @ weights, 1.0).log_prob(y).sum((1, 2)).mean()
    assert seen[0] * problem.unit == pytest.approx(2.5 * fit.item(), rel=1e-9)  # KL(N(0, I) || N(0, I)) = 0
    with pytest.raises(ValueError, match="draws=0 must be a positive integer"):
        RFFRegressor(8, objective="elbo", solver="adam", draws=0).fit(*toy())
