"""The diagonal Laplace approximation against autograd, a dense formula and Monte Carlo."""

import math

import numpy as np
import pytest
import torch
from torch.distributions import Normal

from deelbo.reproduce.rff.demos import held_out, regression
from deelbo.reproduce.rff.laplace import LaplaceRFF

LOGS = torch.tensor([0.6, 0.9, 0.2], dtype=torch.float64).log()


@pytest.fixture
def model(monkeypatch):
    monkeypatch.setattr("deelbo.reproduce.rff.laplace.NUM_FEATURES", 40)
    return LaplaceRFF(*regression(), seed=0)


def test_posterior_is_the_map_with_the_fisher_of_autograd(model):
    mean, variance = model.posterior(LOGS)
    phi, weights = model.features(model.x, LOGS), mean.clone().requires_grad_()

    def log_likelihoods(weights):
        return Normal(phi @ weights, 0.2).log_prob(model.y)

    joint = log_likelihoods(weights).sum() - 0.5 * weights.square().sum()
    assert torch.autograd.grad(joint, weights)[0].abs().max() < 1e-10
    each = torch.autograd.functional.jacobian(log_likelihoods, mean)
    torch.testing.assert_close(variance, 1 / (1 + each.square().sum(0)))


def test_marginal_likelihood(model):
    mean, variance = model.posterior(LOGS)
    joint = (
        Normal(model.features(model.x, LOGS) @ mean, 0.2).log_prob(model.y).sum() + Normal(0, 1).log_prob(mean).sum()
    )
    expected = joint + 20 * math.log(2 * math.pi) + 0.5 * torch.logdet(torch.diag(variance))
    torch.testing.assert_close(model.log_marginal_likelihood(LOGS), expected)


def test_conditional_is_the_average_over_draws(model):
    train, rest = held_out()
    assert sorted([*train, *rest]) == list(range(20))
    mean, variance = model.posterior(LOGS, train)
    draws = mean + variance.sqrt() * torch.randn(
        400_000, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    logs = Normal(draws @ model.features(model.x[rest], LOGS).T, 0.2).log_prob(model.y[rest]).sum(1)
    slow = torch.logsumexp(logs, 0) - math.log(400_000)
    assert model.conditional(LOGS, train, rest).item() == pytest.approx(slow.item(), abs=0.1)


def test_fit_is_at_a_maximum(model):
    fit = model.fit("", model.log_marginal_likelihood)
    best = torch.tensor([fit.learned[n] for n in ("lengthscale", "outputscale", "noise")], dtype=torch.float64).log()
    assert model.log_marginal_likelihood(best).item() == pytest.approx(fit.learned["objective"])
    for i in range(3):
        for step in (-0.02, 0.02):
            other = best.clone()
            other[i] += step
            assert model.log_marginal_likelihood(other) < fit.learned["objective"]
    assert np.isfinite(fit.mean).all()
    assert (fit.std > 0).all()
