"""The conditional marginal likelihood against its exact value for Bayesian linear regression."""

import math

import pytest
import torch
from torch import nn

from deelbo.laplace import LaplacePosterior, conditional_likelihood
from deelbo.laplace.conditional import log_mean
from deelbo.likelihoods import Categorical, Gaussian
from deelbo.priors import GaussianPrior, PriorGroup


def linear_regression():
    """Orthogonal inputs, so that a diagonal posterior is exact: y = X w + noise, w ~ N(0, v I)."""
    generator = torch.Generator().manual_seed(0)
    basis = torch.linalg.qr(torch.randn(30, 4, generator=generator, dtype=torch.float64)).Q * 5
    new = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    noise, variance = 0.5, 1.5
    truth = torch.randn(4, generator=generator, dtype=torch.float64)
    y = basis @ truth + noise * torch.randn(30, generator=generator, dtype=torch.float64)
    y_new = new @ truth + noise * torch.randn(6, generator=generator, dtype=torch.float64)
    return basis, y, new, y_new, noise, variance


@pytest.mark.slow
def test_agrees_with_bayesian_linear_regression():
    X, y, X_new, y_new, noise, variance = linear_regression()
    precision = X.T @ X / noise**2 + torch.eye(4, dtype=torch.float64) / variance
    mean = torch.linalg.solve(precision, X.T @ y / noise**2)
    covariance = X_new @ torch.linalg.solve(precision, X_new.T) + noise**2 * torch.eye(6, dtype=torch.float64)
    exact = torch.distributions.MultivariateNormal(X_new @ mean, covariance).log_prob(y_new)

    layer = nn.Linear(4, 1, bias=False, dtype=torch.float64)
    layer.weight.data.copy_(mean[None])
    prior = GaussianPrior({"all": PriorGroup([layer.weight], variance=variance)})
    posterior = LaplacePosterior(prior, {"all": [(X.T @ X / noise**2).diagonal()[None]]}, 0.0)

    def log_likelihood():
        return torch.distributions.Normal(layer(X_new)[:, 0], noise).log_prob(y_new).sum().detach()

    values = []
    for seed in range(5_000):
        with posterior.sample(seed):
            values.append(log_likelihood())
    values = torch.stack(values)
    ratios = (values - values.max()).exp()
    error = float(ratios.std() / ratios.mean() / math.sqrt(len(values)))
    assert error < 0.04
    assert log_mean(values) == pytest.approx(float(exact), abs=4 * error)
    # The paper's 20 draws: the same within their own Monte Carlo error.
    assert abs(log_mean(values[:20]) - float(exact)) < 4 * float(ratios.std() / ratios.mean() / math.sqrt(20))
    # The mean of the logarithms, the sums in the wrong order, is another number.
    assert float(values.mean()) < log_mean(values) - 0.05


def test_a_temperature_is_a_factor_of_the_standard_deviation():
    """At the temperature t the draws are from N(mean, t^2 H^-1); the likelihood of new targets has a closed form."""
    _, _, X_new, y_new, noise, _ = linear_regression()
    fisher = torch.tensor([0.5, 1.0, 2.0, 4.0], dtype=torch.float64)
    layer = nn.Linear(4, 1, bias=False, dtype=torch.float64)
    layer.weight.data.copy_(torch.linalg.lstsq(X_new, y_new[:, None]).solution.T)
    prior = GaussianPrior({"all": PriorGroup([layer.weight], variance=2.0)})
    posterior = LaplacePosterior(prior, {"all": [fisher[None]]}, 0.0)
    likelihood = Gaussian(noise=noise).double()
    precision = torch.diag(fisher) + torch.eye(4, dtype=torch.float64) / 2.0
    for t in (0.5, 0.1, 0.01):
        covariance = t**2 * X_new @ torch.linalg.inv(precision) @ X_new.T + noise**2 * torch.eye(6, dtype=torch.float64)
        exact = torch.distributions.MultivariateNormal(layer(X_new)[:, 0].detach(), covariance).log_prob(y_new)
        found = conditional_likelihood(
            posterior, lambda: layer(X_new), y_new[:, None], likelihood, samples=2000, temperatures=[t]
        )
        assert found.value == pytest.approx(float(exact), abs=0.08)
        assert found.temperature == t


def test_the_temperature_is_chosen_by_the_mean_over_classes():
    """Nine examples of one class and one of another: always saying the first is 90 % right, and no rule at all."""
    labels = torch.tensor([0] * 9 + [1])
    says_first = torch.tensor([[1.0, 0.0]]).expand(10, 2)
    finds_both = torch.tensor([[1.0, 0.0]] * 7 + [[0.0, 1.0]] * 3)
    weight = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    prior = GaussianPrior({"all": PriorGroup([weight])})
    posterior = LaplacePosterior(prior, {"all": [torch.ones(1, dtype=torch.float64)]}, 0.0)

    def outputs():  # the rule depends on how far the draws are from the mean
        return 5.0 * (says_first if weight.abs().item() < 1e-3 else finds_both)

    found = conditional_likelihood(posterior, outputs, labels, samples=3, temperatures=[1e-6, 1.0])
    assert found.temperature == 1.0
    assert found.score == pytest.approx((7 / 9 + 1) / 2)
    assert Categorical().score(says_first, labels) == pytest.approx(0.5)


def classifier(seed=0):
    torch.manual_seed(seed)
    layer = nn.Linear(2, 2, bias=False, dtype=torch.float64)
    layer.weight.data.copy_(torch.tensor([[-3.0, 0.0], [3.0, 0.0]]))
    x = torch.randn(40, 2, dtype=torch.float64)
    labels = (x[:, 0] > 0).long()
    prior = GaussianPrior({"all": PriorGroup([layer.weight], variance=1e6)})
    posterior = LaplacePosterior(prior, {"all": [torch.full((2, 2), 1e-3, dtype=torch.float64)]}, 0.0)
    return layer, x, labels, posterior


def test_the_temperature_is_that_of_the_most_accurate_average():
    layer, x, labels, posterior = classifier()

    def log_probabilities():
        with torch.no_grad():
            return layer(x).log_softmax(1)

    # A standard deviation of 30 hides the rule; one of 0.3 keeps it.
    found = conditional_likelihood(posterior, log_probabilities, labels, samples=5)
    each = [
        conditional_likelihood(posterior, log_probabilities, labels, samples=5, temperatures=[t])
        for t in (1.0, 0.1, 0.01, 1e-3, 1e-4)
    ]
    best = max(one.score for one in each)
    assert each[0].score < best
    assert found == next(one for one in each if one.score == best)


def test_an_impossible_draw_counts_as_nothing():
    assert log_mean(torch.tensor([-math.inf, 0.0])) == pytest.approx(-math.log(2))
    assert log_mean(torch.tensor([-math.inf, -math.inf])) == -math.inf
    assert log_mean(torch.tensor([math.nan, 0.0])) == -math.inf


def test_a_temperature_without_likelihood_is_not_chosen():
    layer, x, labels, posterior = classifier()

    def log_probabilities():  # beyond what a float can hold at the first temperature
        with torch.no_grad():
            value = layer(x).log_softmax(1)
        return value if layer.weight.abs().max() < 1e4 else torch.full_like(value, math.nan)

    found = conditional_likelihood(posterior, log_probabilities, labels, samples=4, temperatures=[1e9, 1e-4])
    assert found.temperature == 1e-4
    assert (
        conditional_likelihood(posterior, log_probabilities, labels, samples=4, temperatures=[1e9]).value == -math.inf
    )
