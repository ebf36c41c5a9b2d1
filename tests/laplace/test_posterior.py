"""The Laplace posterior against dense float64 formulas and laplace-torch."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import laplace
from deelbo.laplace import LaplacePosterior, empirical_fisher
from deelbo.priors import GaussianPrior, PriorGroup, l2_sp
from deelbo.priors.covariance import DiagonalPlusLowRank
from laplace import curvature
from shared.cases import Net, batch


class SmallCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(2, 4, 3), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten())
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.body(x))


def problem(kind):
    torch.manual_seed(3)
    if kind == "mlp":
        network = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).double()
        return network, "2", *batch(24)
    network = SmallCNN().double()
    return network, "head", torch.randn(24, 2, 6, 6, dtype=torch.float64), torch.randint(3, (24,))


def posterior_of(network, prior, x, y):
    fisher = {name: empirical_fisher(network, group.weights, [(x, y)]) for name, group in prior.named_groups().items()}
    with torch.no_grad():
        log_likelihood = -float(F.cross_entropy(network(x), y, reduction="sum"))
    return LaplacePosterior(prior, fisher, log_likelihood)


@pytest.mark.parametrize("kind", ["mlp", "cnn"])
@pytest.mark.parametrize("precisions", [{"backbone": 0.7, "head": 0.7}, {"backbone": 30.0, "head": 0.2}])
def test_agrees_with_laplace_torch(kind, precisions):
    network, head, x, y = problem(kind)
    prior = l2_sp(network, head)
    prior.set_variances({name: 1 / value for name, value in precisions.items()})
    means = torch.cat([p.detach().flatten() for p in network.parameters()]).clone()
    means[-sum(w.numel() for w in prior.named_groups()["head"].weights) :] = 0
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    ours = posterior_of(network, prior, x, y)

    sizes = [(precisions["head" if name.startswith(head) else "backbone"], p.numel()) for name, p in
             network.named_parameters()]  # fmt: skip
    if len(set(precisions.values())) == 1:
        precision = torch.tensor([0.7], dtype=torch.float64)
    else:
        precision = torch.cat([torch.full((size,), value, dtype=torch.float64) for value, size in sizes])
    theirs = laplace.DiagLaplace(
        network, "classification", prior_precision=precision, prior_mean=means, backend=curvature.BackPackEF
    )
    theirs.fit(torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=8))
    fisher = torch.cat([f.flatten() for each in ours.groups for f in each.fisher])
    torch.testing.assert_close(fisher, theirs.H.double(), rtol=1e-5, atol=1e-12)
    expected = float(theirs.log_marginal_likelihood())
    assert ours.log_marginal_likelihood() == pytest.approx(expected, rel=1e-5)
    assert ours.log_marginal_likelihood() != pytest.approx(ours.log_likelihood, rel=1e-2)


def low_rank_problem():
    torch.manual_seed(5)
    network, (x, y) = Net(), batch(24)
    backbone = {n: p for n, p in network.named_parameters() if not n.startswith("head")}
    shapes = [p.detach() for p in backbone.values()]
    covariance = DiagonalPlusLowRank(
        [torch.rand_like(p) + 0.3 for p in shapes], [[torch.randn_like(p) for p in shapes] for _ in range(3)]
    )
    mean = [p + 0.2 * torch.randn_like(p) for p in shapes]
    groups = {
        "backbone": PriorGroup(backbone, mean, covariance, variance=0.4),
        "head": PriorGroup(network.head.parameters(), variance=2.0),
    }
    return network, GaussianPrior(groups), x, y


def dense(posterior):
    """Return H and the prior's precision matrix of each group, as dense matrices."""
    for each in posterior.groups:
        group, fisher = each.group, torch.cat([f.flatten() for f in each.fisher])
        if each.rank:
            covariance = group.covariance
            s = torch.cat([b.flatten() for b in covariance.roots.buffers()])
            w = torch.stack([torch.cat([b.flatten() for b in column.buffers()]) for column in covariance.factors], 1)
            inverse = torch.linalg.inv((torch.eye(len(s), dtype=torch.float64) + w @ w.T) / s.outer(s))
        else:
            inverse = torch.eye(group.num_params, dtype=torch.float64)
        mean = 0 if group.mean is None else torch.cat([m.flatten() for m in group.mean.buffers()])
        d = torch.cat([w.detach().flatten() for w in group.weights]) - mean
        yield group, fisher.diag(), inverse, d


def dense_evidence(posterior, variances):
    total = posterior.log_likelihood
    for (_, fisher, inverse, d), v in zip(dense(posterior), variances, strict=True):
        precision = inverse / v
        total = total + 0.5 * (torch.logdet(precision) - d @ precision @ d - torch.logdet(fisher + precision))
    return total


def test_low_rank_prior_against_the_dense_formula():
    network, prior, x, y = low_rank_problem()
    posterior = posterior_of(network, prior, x, y)
    assert posterior.log_marginal_likelihood() == pytest.approx(float(dense_evidence(posterior, [0.4, 2.0])), rel=1e-9)


def test_best_variances_are_the_maximum_and_where_adam_goes():
    network, prior, x, y = low_rank_problem()
    posterior = posterior_of(network, prior, x, y)
    logs = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([logs], lr=1.0)
    for _ in range(100):  # Immer et al.
        optimizer.zero_grad()
        (-dense_evidence(posterior, torch.exp(-logs))).backward()
        optimizer.step()
    posterior.best_variances()
    best = torch.tensor(list(prior.variances.values()), dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(dense_evidence(posterior, best), best)
    assert (gradient * best).abs().max() < 1e-4
    torch.testing.assert_close(best.detach(), torch.exp(-logs.detach()), rtol=0.05, atol=0)
    found, adam = dense_evidence(posterior, best.detach()), dense_evidence(posterior, torch.exp(-logs.detach()))
    assert found >= adam - 1e-6


def test_draws_have_the_posterior_covariance():
    network, prior, x, y = low_rank_problem()
    posterior = posterior_of(network, prior, x, y)
    weights = [p for group in prior.named_groups().values() for p in group.weights]
    center = torch.cat([w.detach().flatten() for w in weights])
    draws = []
    for seed in range(1500):
        with posterior.sample(seed, scale=0.5):
            draws.append(torch.cat([w.detach().flatten() for w in weights]) - center)
    assert torch.equal(torch.cat([w.detach().flatten() for w in weights]), center)
    found = torch.cov(torch.stack(draws).T)
    expected = 0.25 * torch.block_diag(
        *(torch.linalg.inv(f + inverse / group.variance) for group, f, inverse, _ in dense(posterior))
    )
    scale = expected.diagonal().sqrt()
    correlation_error = (found - expected) / (scale[:, None] * scale)
    assert correlation_error.abs().max() < 5 * math.sqrt(2 / 1500)


@pytest.mark.parametrize(("scatter", "fisher", "expected"), [(0.0, 1.0, 1e-12), (1.0, 0.0, 1e12)])
def test_nothing_to_learn_from_is_bounded(scatter, fisher, expected):
    weight = nn.Parameter(torch.full((4,), scatter, dtype=torch.float64))
    prior = GaussianPrior({"all": PriorGroup([weight])})
    LaplacePosterior(prior, {"all": [torch.full_like(weight, fisher)]}, 0.0).best_variances()
    assert prior.variances["all"] == pytest.approx(expected)


def test_a_far_start_does_not_stop_at_the_bound():
    weight = nn.Parameter(torch.full((1000,), 3e-10, dtype=torch.float64))
    prior = GaussianPrior({"all": PriorGroup([weight])})
    LaplacePosterior(prior, {"all": [torch.full_like(weight, 1.0)]}, 0.0).best_variances()
    p, s = 1 / prior.variances["all"], float(weight.detach().square().sum())
    assert p < 1e11
    assert 1000 / (1 + p) == pytest.approx(p * s, rel=1e-5)
