import functools
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.distributions import Independent, MultivariateNormal, Normal, kl_divergence

import deelbo
from deelbo.priors import GaussianPrior, PriorGroup
from shared.cases import Net, batch, copies, same
from shared.covariances import low_rank

BY_GRADIENT = functools.partial(deelbo.IsotropicPosterior, scale_update="gradient")


def make(kappa=None, num_data=12, posterior_class=deelbo.IsotropicPosterior, scale=0.05, **options):
    net = Net(**options)
    posterior = posterior_class(net, init_scale=scale, seed=3)
    prior = deelbo.priors.l2_sp(net, head="head")
    for p in net.parameters():
        p.data.add_(0.1 * torch.randn_like(p))
    return net, deelbo.DataEmphasizedELBO(posterior, prior, num_data, kappa)


def test_kappa_is_d_over_n_but_at_least_one():
    net, objective = make(num_data=12)
    d = sum(p.numel() for p in net.parameters())
    assert objective.kappa == d / 12
    assert make(num_data=10_000)[1].kappa == 1.0
    assert make(kappa=1.0)[1].kappa == 1.0


@settings(deadline=None, max_examples=15)
@given(
    rank=st.integers(-1, 4),
    kappa=st.sampled_from([None, 1.0, 3.5]),
    scale=st.floats(1e-3, 0.5),
    posterior_class=st.sampled_from([BY_GRADIENT, deelbo.DiagonalPosterior]),
    learned=st.booleans(),
)
def test_backward_is_the_gradient_of_the_loss_by_autograd(rank, kappa, scale, posterior_class, learned):
    torch.manual_seed(0)
    net = Net()
    x, y = batch()
    posterior = posterior_class(net, init_scale=scale)
    body = nn.ParameterList(p for name, p in net.named_parameters() if not name.startswith("head"))
    size = sum(p.numel() for p in body)
    covariance, dense = low_rank(body, rank) if rank >= 0 else (None, torch.eye(size, dtype=torch.float64))
    mean = torch.randn(size, dtype=torch.float64)
    prior = GaussianPrior(
        {
            "backbone": PriorGroup(body, mean, covariance, 0.5, learned),
            "head": PriorGroup(net.head.parameters(), learned=learned),
        }
    )
    objective = deelbo.DataEmphasizedELBO(posterior, prior, num_data=12, kappa=kappa)
    with posterior.sample():
        noise = [(p - m).detach() for p, m in zip(posterior._random, posterior._saved.means, strict=True)]
        scales = [F.softplus(raw.detach()) for raw in posterior.scale_parameters()]
        scales = scales * len(noise) if len(scales) == 1 else scales
        noise = [n / s for n, s in zip(noise, scales, strict=True)]
        F.cross_entropy(net(x), y).backward()
    objective.backward()

    means = {name: p.detach().clone().requires_grad_() for name, p in net.named_parameters()}
    raws = [raw.detach().clone().requires_grad_() for raw in posterior.scale_parameters()]
    scales = [F.softplus(raw) for raw in raws]
    scales = scales * len(means) if len(scales) == 1 else scales
    drawn = {n: m + s * e for (n, m), s, e in zip(means.items(), scales, noise, strict=True)}
    loss = F.cross_entropy(torch.func.functional_call(net, drawn, (x,)), y)
    vector = {True: [], False: []}
    spread = {True: [], False: []}
    for (name, m), s in zip(means.items(), scales, strict=True):
        vector[name.startswith("head")].append(m.flatten())
        spread[name.startswith("head")].append(s.expand_as(m).flatten())
    q_body, q_head = (
        MultivariateNormal(torch.cat(vector[k]), torch.cat(spread[k]).square().diag()) for k in (False, True)
    )
    v_body, v_head = prior.variances.values()
    p_body = MultivariateNormal(mean, v_body * dense)
    p_head = Independent(Normal(torch.zeros(24, dtype=torch.float64), math.sqrt(v_head)), 1)
    kl = kl_divergence(q_body, p_body)
    kl = kl + kl_divergence(Independent(Normal(q_head.mean, q_head.variance.sqrt()), 1), p_head)
    (loss + kl / (objective.kappa * 12)).backward()
    for p, m in zip(net.parameters(), means.values(), strict=True):
        torch.testing.assert_close(p.grad, m.grad, rtol=1e-8, atol=1e-9)
    for raw, reference in zip(posterior.scale_parameters(), raws, strict=True):
        torch.testing.assert_close(raw.grad, reference.grad, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(objective.kl(), kl.detach(), rtol=1e-8, atol=1e-8)
    assert (prior.variances["head"] != 1.0) == learned


def test_unused_weights_are_pulled_to_the_prior():
    net, _ = make()
    net.unused = nn.Parameter(torch.ones(2, dtype=torch.float64))
    posterior = deelbo.IsotropicPosterior(net)
    objective = deelbo.DataEmphasizedELBO(posterior, deelbo.priors.l2_zero(net, head="head"), 12)
    x, y = batch()
    with posterior.sample():
        F.cross_entropy(net(x), y).backward()
    objective.backward()
    expected = 1 / (objective.prior.variances["backbone"] * objective.kappa * 12)
    torch.testing.assert_close(net.unused.grad, torch.full((2,), expected, dtype=torch.float64))


def test_backward_out_of_place_is_an_error():
    net, objective = make()
    x, y = batch()
    with pytest.raises(RuntimeError, match="inside the block"):
        objective.backward()
    with pytest.raises(RuntimeError, match=r"after the posterior.sample"), objective.posterior.sample():
        objective.backward()
    with objective.posterior.sample():
        F.cross_entropy(net(x), y).backward()
    objective.backward()
    with pytest.raises(RuntimeError, match="since the last"):
        objective.backward()


def test_wrong_arguments_are_refused():
    net, objective = make()
    posterior, prior = objective.posterior, objective.prior
    for kappa in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="kappa"):
            deelbo.DataEmphasizedELBO(posterior, prior, 12, kappa)
    with pytest.raises(ValueError, match="num_data"):
        deelbo.DataEmphasizedELBO(posterior, prior, 0)
    half = GaussianPrior({"head": PriorGroup(net.head.parameters())})
    with pytest.raises(ValueError, match=r"no group for 4 weights of the posterior, such as 'body.weight'"):
        deelbo.DataEmphasizedELBO(posterior, half, 12)
    wider = GaussianPrior({**prior.named_groups(), "other": PriorGroup(Net().parameters())})
    with pytest.raises(ValueError, match="does not cover 6 parameters"):
        deelbo.DataEmphasizedELBO(posterior, wider, 12)


def test_value_and_estimate():
    net, objective = make(scale=0.2)
    x, y = batch()
    assert float(objective.value(-3.0)) == pytest.approx(-3 * objective.kappa - float(objective.kl()))
    seen = []

    def log_likelihood():
        seen.append(net.head.weight.detach().clone())
        return -F.cross_entropy(net(x), y, reduction="sum")

    before, draws = copies(net), objective.posterior.draws
    value = objective.estimate(log_likelihood, samples=4)
    assert len({w.sum().item() for w in seen}) == 4
    assert same(net, before)
    assert objective.posterior.draws == draws  # training goes on as if nothing had been estimated
    values = []
    for weight in range(4):
        with objective.posterior.sample(seed=weight):
            values.append(float(-F.cross_entropy(net(x), y, reduction="sum").detach()))
    expected = objective.kappa * sum(values) / 4 - float(objective.kl())
    assert float(value) == pytest.approx(expected, rel=1e-10)
    with pytest.raises(ValueError, match="samples"):
        objective.estimate(log_likelihood, samples=0)
    with pytest.raises(ValueError, match="one number"):
        objective.estimate(lambda: torch.zeros(12))


def test_estimates_run_in_eval_mode_and_put_every_mode_back():
    net = nn.Sequential(nn.BatchNorm1d(5), nn.Dropout(), nn.Linear(5, 3))
    net[0].eval()
    posterior = deelbo.IsotropicPosterior(net)
    objective = deelbo.DataEmphasizedELBO(posterior, deelbo.priors.l2_zero(net, head="2"), 12)
    x, _ = batch(dtype=torch.float32)
    modes = []

    def log_likelihood():
        modes.append([module.training for module in net.modules()])
        assert not torch.is_grad_enabled()
        return net(x).sum()

    objective.estimate(log_likelihood, samples=1)
    objective.estimate_importance_weighted(log_likelihood, samples=1)
    assert not any(any(mode) for mode in modes)
    assert [m.training for m in net] == [False, True, True]
    with pytest.raises(ZeroDivisionError):
        objective.estimate(lambda: 1 / 0)
    assert net.training


@pytest.mark.parametrize("kappa", [1.0, 2.5])
def test_importance_weighted_bound_agrees_with_the_dense_formula(kappa):
    net, objective = make(kappa=kappa, scale=0.1)
    objective.prior.update_variances(objective.posterior)
    x, y = batch()
    value = objective.estimate_importance_weighted(lambda: -F.cross_entropy(net(x), y, reduction="sum"), samples=6)
    posterior, groups = objective.posterior, objective.prior.named_groups()
    mean = torch.cat([p.detach().flatten() for p in net.parameters()])
    q = Independent(Normal(mean, posterior.scale.detach()), 1)
    sizes = {name: p.numel() for name, p in net.named_parameters()}
    center = torch.cat([t.flatten() for t in groups["backbone"].mean.buffers()] + [torch.zeros(24)]).double()
    owner = {name: groups["head" if name.startswith("head") else "backbone"] for name in sizes}
    variance = torch.cat([torch.full((size,), owner[name].variance) for name, size in sizes.items()])
    p = Independent(Normal(center, variance.double().sqrt()), 1)
    terms = []
    for s in range(6):
        with posterior.sample(seed=s):
            theta = torch.cat([w.detach().flatten() for w in net.parameters()])
            ll = -F.cross_entropy(net(x), y, reduction="sum").detach()
            terms.append(kappa * ll + p.log_prob(theta) - q.log_prob(theta))
    expected = torch.logsumexp(torch.stack(terms), 0) - math.log(6)
    torch.testing.assert_close(value, expected, rtol=1e-6, atol=1e-6)


def test_bounds_are_ordered():
    """ELBO <= IWELBO <= log marginal likelihood, on a linear model where the last one is known."""
    torch.manual_seed(1)
    x = torch.randn(8, 3, dtype=torch.float64)
    y = x @ torch.ones(3, dtype=torch.float64) + 0.3 * torch.randn(8, dtype=torch.float64)
    net = nn.Linear(3, 1, bias=False, dtype=torch.float64)
    covariance = torch.linalg.inv(torch.eye(3) + x.T @ x / 0.09)
    net.weight.data = (covariance @ x.T @ y / 0.09)[None]
    posterior = deelbo.IsotropicPosterior(net, init_scale=0.1)
    prior = GaussianPrior({"all": PriorGroup(net.parameters(), variance=1.0, learned=False)})
    objective = deelbo.DataEmphasizedELBO(posterior, prior, 8, kappa=1.0)

    def log_likelihood():
        return Normal(net(x)[:, 0], 0.3).log_prob(y).sum()

    evidence = MultivariateNormal(torch.zeros(8).double(), 0.09 * torch.eye(8) + x @ x.T).log_prob(y)
    elbo = objective.estimate(log_likelihood, samples=500)
    iwelbo = objective.estimate_importance_weighted(log_likelihood, samples=500)
    assert elbo < iwelbo < evidence + 0.05
    assert float(evidence - iwelbo) < 0.2 * float(evidence - elbo)


def test_importance_weights_of_huge_magnitude_are_stable():
    _, objective = make(kappa=1e6)
    assert objective.estimate_importance_weighted(lambda: -1e9, samples=3).isfinite()


def test_objective_offers_the_posteriors_parameters():
    _, objective = make()
    assert {id(p) for p in objective.parameters()} == {id(p) for p in objective.posterior.parameters()}


def test_summary_changes_nothing_and_has_the_optimal_variances():
    net, objective = make()
    for parameter in net.parameters():
        parameter.data += 0.1
    before = objective.prior.variances
    summary = objective.summary()
    assert objective.prior.variances == before
    objective.prior.update_variances(objective.posterior)
    for name, value in objective.prior.variances.items():
        assert summary[f"variance_{name}"] == pytest.approx(value)
    assert summary["scale"] == pytest.approx(objective.posterior.scale.item())
    assert summary["kl"] == pytest.approx(float(objective.kl()) / (objective.kappa * objective.num_data))
