"""Lemmas 1 and 2 of the paper, on its random-Fourier-feature regression model with fixed hyperparameters."""

import math

import pytest
import torch
from torch import nn

import deelbo
from deelbo.priors import GaussianPrior, PriorGroup

pytestmark = pytest.mark.slow

NOISE = 0.3


def features(num_data, num_features):
    """Return phi(x) of `eq:phi` with lengthscale and outputscale 1, so that tr(Phi Phi^T) is about N."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(num_data, 1, generator=generator, dtype=torch.float64)
    a = torch.randn(1, num_features, generator=generator, dtype=torch.float64)
    b = 2 * math.pi * torch.rand(num_features, generator=generator, dtype=torch.float64)
    return math.sqrt(2 / num_features) * torch.cos(x @ a + b), torch.sin(3 * x)


def trained_variance(phi, y, kappa, scale_update):
    """Train q by the stochastic algorithm and return the variance that it found."""
    net = nn.Linear(phi.shape[1], 1, bias=False, dtype=torch.float64)
    posterior = deelbo.IsotropicPosterior(net, init_scale=0.5, seed=0, scale_update=scale_update)
    prior = GaussianPrior({"all": PriorGroup(net.parameters(), variance=1.0, learned=False)})
    objective = deelbo.DataEmphasizedELBO(posterior, prior, num_data=len(phi), kappa=kappa)
    optimizer = torch.optim.Adam(posterior.parameters(), lr=0.05)
    samples = max(2, 1024 // phi.shape[1])  # the fewer weights, the noisier the gradient of their common scale
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=300)
    for _ in range(300):
        optimizer.zero_grad()
        for _ in range(samples):
            with posterior.sample():
                (0.5 * ((y - net(phi)) / NOISE).square().mean() / samples).backward()
        objective.backward()
        optimizer.step()
        scheduler.step()
    return posterior.scale.item() ** 2


def optimal_variance(phi, kappa):
    """D / (kappa / noise^2 tr(Phi Phi^T) + D)."""
    size = phi.shape[1]
    return size / (kappa / NOISE**2 * float(phi.square().sum()) + size)


@pytest.mark.parametrize("scale_update", ["gradient", "closed-form"])
@pytest.mark.parametrize("size", [128, 256, 1024])
def test_trained_scale_agrees_with_the_lemmas(size, scale_update):
    phi, y = features(20, size)
    for kappa in (1.0, size / 20):
        assert trained_variance(phi, y, kappa, scale_update) == pytest.approx(optimal_variance(phi, kappa), rel=0.05)


def test_elbo_collapses_to_the_prior_and_the_data_emphasized_one_does_not():
    sizes = (64, 512, 4096, 32768)
    elbo = [optimal_variance(features(20, d)[0], 1.0) for d in sizes]
    emphasized = [optimal_variance(features(20, d)[0], d / 20) for d in sizes]
    assert elbo == sorted(elbo)
    assert elbo[-1] > 0.99
    limit = 1 / (1 / NOISE**2 + 1)
    assert emphasized == pytest.approx([limit] * 4, rel=0.15)
    assert emphasized[-1] == pytest.approx(limit, rel=0.01)


def test_closed_form_scale_is_a_stationary_point_of_our_gradient():
    phi, _ = features(20, 256)
    for kappa in (1.0, 256 / 20):
        net = nn.Linear(256, 1, bias=False, dtype=torch.float64)
        posterior = deelbo.IsotropicPosterior(
            net, init_scale=math.sqrt(optimal_variance(phi, kappa)), scale_update="gradient"
        )
        group = PriorGroup(net.parameters(), variance=1.0, learned=False)
        scale = posterior.scale.detach()
        likelihood = kappa * scale * phi.square().sum() / NOISE**2  # d E[-log p(y | v)] / d scale
        posterior.add_kl_gradient([group], 1.0)
        slope = posterior.raw_scale.grad / torch.sigmoid(posterior.raw_scale.detach())
        assert abs(float(likelihood + slope)) < 1e-8 * float(likelihood)
