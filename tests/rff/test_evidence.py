"""Closed forms against torch.distributions, and against autograd: the best q is a stationary point."""

import math

import pytest
import torch
from torch.distributions import MultivariateNormal, Normal, kl_divergence

from deelbo.rff.evidence import Dual, Primal, _Solve, isotropic_objective, log_marginal_likelihood

NOISE = torch.tensor(0.3, dtype=torch.float64)


def problem(number, features, outputs, seed=0):
    generator = torch.Generator().manual_seed(seed)
    phi = torch.randn(number, features, dtype=torch.float64, generator=generator) / math.sqrt(features)
    return phi, torch.randn(number, outputs, dtype=torch.float64, generator=generator)


def both(phi, y):
    return Primal(phi.T @ phi, phi.T @ y, y.square().sum(), len(y)), Dual(phi @ phi.T, phi, y)


def test_gradient_of_the_solve():
    K = torch.randn(5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    c = torch.ones(5, 2, dtype=torch.float64, requires_grad=True)
    symmetric = lambda K: K @ K.T + torch.eye(5, dtype=torch.float64)  # noqa: E731
    assert torch.autograd.gradcheck(lambda K, c: _Solve.apply(symmetric(K), c)[:2], (K, c))


SIZES = [(12, 5, 1), (5, 12, 1), (9, 9, 2), (20, 7, 3)]


@pytest.mark.parametrize("sizes", SIZES)
def test_marginal_likelihood(sizes):
    phi, y = problem(*sizes)
    covariance = phi @ phi.T + NOISE * torch.eye(len(y), dtype=torch.float64)
    dense = MultivariateNormal(torch.zeros(len(y), dtype=torch.float64), covariance).log_prob(y.T).sum()
    posterior = torch.linalg.solve(phi.T @ phi + NOISE * torch.eye(sizes[1], dtype=torch.float64), phi.T @ y)
    for stats in both(phi, y):
        value, mean = log_marginal_likelihood(stats, NOISE, sizes)
        torch.testing.assert_close(value, dense, rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(mean, posterior, rtol=1e-8, atol=1e-8)


def slow_objective(phi, y, mean, scale, kappa):
    """J by the definition: kappa E_q[log p(y | v)] - KL(q || p), the expectation of a square in closed form."""
    fit = Normal(phi @ mean, NOISE.sqrt()).log_prob(y).sum()
    fit = fit - mean.shape[1] * scale**2 * phi.square().sum() / (2 * NOISE)
    kl = kl_divergence(Normal(mean, scale), Normal(torch.zeros_like(mean), 1.0)).sum()
    return kappa * fit - kl


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("kappa", [1.0, 3.7])
def test_isotropic_objective_is_the_maximum(sizes, kappa):
    phi, y = problem(*sizes)
    for stats in both(phi, y):
        value, mean, variance = isotropic_objective(stats, NOISE, kappa, sizes)
        mean, scale = mean.clone().requires_grad_(), variance.sqrt().requires_grad_()
        slow = slow_objective(phi, y, mean, scale, kappa)
        torch.testing.assert_close(value, slow.detach(), rtol=1e-8, atol=1e-8)
        for gradient in torch.autograd.grad(slow, (mean, scale)):
            assert gradient.abs().max() < 1e-7
        worse = slow_objective(phi, y, mean * 1.01, scale, kappa), slow_objective(phi, y, mean, scale * 1.05, kappa)
        assert all(w < slow for w in worse)
