"""What all likelihoods share: the objective with each of them, by autograd and torch.distributions in float64."""

import math

import pytest
import torch
from torch import nn
from torch.distributions import Bernoulli, Categorical, Independent, Normal, kl_divergence

import deelbo
from deelbo.likelihoods import LIKELIHOODS, likelihood_of_task, recognise_likelihood

N, K = 12, 3
TARGETS = {
    "categorical": lambda g: torch.randint(K, (N,), generator=g),
    "gaussian": lambda g: 5 + 2 * torch.randn(N, K, dtype=torch.float64, generator=g),
    "bernoulli": lambda g: torch.randint(2, (N, K), generator=g),
}


def log_prob(name, likelihood, output, y):
    if name == "categorical":
        return Categorical(logits=output).log_prob(y)
    if name == "bernoulli":
        return Bernoulli(logits=output).log_prob(y.double()).sum(1)
    return Normal(output, likelihood.noise).log_prob((y - y.mean(0)) / y.std(0, correction=0)).sum(1)


@pytest.mark.parametrize("name", TARGETS)
def test_gradient_and_objective(name):
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(N, 5, dtype=torch.float64, generator=generator), TARGETS[name](generator)
    net = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, K)).double()
    likelihood = LIKELIHOODS[name].for_training("none").double()
    likelihood.fit(y, K)
    posterior = deelbo.IsotropicPosterior(net, init_scale=0.05, seed=1, scale_update="gradient")
    prior = deelbo.priors.l2_zero(net, head="2")
    kappa = likelihood.default_kappa(posterior.num_params, N, K)
    objective = deelbo.DataEmphasizedELBO(posterior, prior, N, kappa)
    means = [p.detach().clone().requires_grad_() for p in net.parameters()]
    with posterior.sample():
        noise = [
            (p.detach() - m.detach()) / posterior.scale.item() for p, m in zip(net.parameters(), means, strict=True)
        ]
        likelihood(net(x), y).backward()
    objective.backward()

    own = [p.grad.clone() for p in likelihood.parameters()]
    raw = posterior.raw_scale.detach().clone().requires_grad_()
    scale = nn.functional.softplus(raw)
    names = [name for name, _ in net.named_parameters()]
    drawn = {n: m + scale * e for n, m, e in zip(names, means, noise, strict=True)}
    loss = -log_prob(name, likelihood, torch.func.functional_call(net, drawn, (x,)), y).mean()
    kl = 0.0
    for n, m in zip(names, means, strict=True):
        variance = prior.variances["head" if n.startswith("2") else "backbone"]
        zeros = torch.zeros_like(m)
        kl = kl + kl_divergence(
            Independent(Normal(m, scale), m.ndim), Independent(Normal(zeros, math.sqrt(variance)), m.ndim)
        )
    (loss + kl / (kappa * N)).backward()
    for p, m in zip(net.parameters(), means, strict=True):
        torch.testing.assert_close(p.grad, m.grad)
    torch.testing.assert_close(posterior.raw_scale.grad, raw.grad)
    for p, before in zip(likelihood.parameters(), own, strict=True):
        torch.testing.assert_close(p.grad - before, before)  # both losses have reached it

    def log_likelihood():
        return likelihood.log_likelihood(net(x), y)

    estimate = objective.estimate(log_likelihood, samples=3)
    terms = []
    for s in range(3):
        with torch.no_grad(), posterior.sample(seed=s):
            terms.append(log_prob(name, likelihood, net(x), y).sum())
    torch.testing.assert_close(estimate, kappa * torch.stack(terms).mean() - kl.detach())


@pytest.mark.parametrize("name", TARGETS)
def test_averaging_predictions_is_averaging_distributions(name):
    """The mean over draws of p(y | draw) has the moments of the averaged prediction."""
    generator = torch.Generator().manual_seed(1)
    y = TARGETS[name](generator)
    likelihood = LIKELIHOODS[name].for_training("none")
    likelihood.fit(y, K)
    outputs = torch.randn(4, N, K, generator=generator)
    average = likelihood.average(likelihood.averageable(output) for output in outputs)
    prediction = likelihood.shown(likelihood.prediction(average))
    if name == "gaussian":
        draws = likelihood.location + likelihood.spread * outputs.double()
        torch.testing.assert_close(prediction.mean, draws.mean(0))
        noise = (likelihood.spread * likelihood.noise.double()).square().detach()
        torch.testing.assert_close(prediction.std.square(), noise + draws.var(0, correction=0))
    else:
        squash = torch.sigmoid if name == "bernoulli" else lambda o: o.softmax(-1)
        torch.testing.assert_close(prediction, squash(outputs.double()).mean(0))


def test_names_and_tasks():
    assert LIKELIHOODS.names() == ["bernoulli", "categorical", "gaussian"]
    assert likelihood_of_task("multilabel") == "bernoulli"
    with pytest.raises(ValueError, match="one of classification, multilabel, regression"):
        likelihood_of_task("ranking")
    assert recognise_likelihood(torch.tensor([1, 2])) == "categorical"
    assert recognise_likelihood(torch.tensor([1.0, 2.0])) == "gaussian"
    assert recognise_likelihood(torch.tensor([[True, False]])) == "bernoulli"
