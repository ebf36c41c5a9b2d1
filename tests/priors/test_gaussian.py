import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import MultivariateNormal, kl_divergence

import deelbo
from deelbo.priors import GaussianPrior, PriorGroup
from shared.cases import Bare, Net
from shared.covariances import low_rank, shapes


def dense_posterior(posterior, names):
    """Return q over some parameters as a dense Gaussian."""
    weights = [posterior.means[name] for name in names]
    mean = torch.cat([w.detach().flatten() for w in weights])
    if isinstance(posterior, deelbo.IsotropicPosterior):
        scale = posterior.scale.detach().expand_as(mean)
    else:
        chosen = [posterior.raw_scale[list(posterior.means).index(name)] for name in names]
        scale = torch.cat([torch.nn.functional.softplus(raw.detach()).flatten() for raw in chosen])
    return MultivariateNormal(mean, scale.square().diag())


@settings(deadline=None, max_examples=25)
@given(
    shapes=shapes,
    rank=st.integers(-1, 4),
    scale=st.floats(1e-3, 2.0),
    variance=st.floats(1e-3, 1e3),
    diagonal=st.booleans(),
)
def test_kl_log_prob_and_optimal_variance_agree_with_torch_distributions(shapes, rank, scale, variance, diagonal):
    net = Bare(*shapes)
    posterior_class = deelbo.DiagonalPosterior if diagonal else deelbo.IsotropicPosterior
    posterior = posterior_class(net, init_scale=scale)
    if diagonal:
        for raw in posterior.raw_scale:
            raw.data.add_(torch.randn_like(raw))
    size = posterior.num_params
    covariance, dense = low_rank(net, rank) if rank >= 0 else (None, torch.eye(size, dtype=torch.float64))
    mean = torch.randn(size, dtype=torch.float64)
    prior = GaussianPrior({"all": PriorGroup(net.parameters(), mean, covariance, variance)})

    def reference(v):
        return MultivariateNormal(mean, v * dense)

    q = dense_posterior(posterior, list(posterior.means))
    torch.testing.assert_close(prior.kl(posterior), kl_divergence(q, reference(variance)), rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(prior.log_prob(), reference(variance).log_prob(net.vector()), rtol=1e-8, atol=1e-8)

    prior.update_variances(posterior)
    best = torch.tensor(prior.variances["all"], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(kl_divergence(q, reference(best)), best)
    assert abs((slope * best).item()) < 1e-8 * size * max(1.0, 1 / scale)
    inverse = torch.linalg.inv(dense)
    deviation = net.vector() - mean
    expected = ((inverse @ q.covariance_matrix).trace() + deviation @ inverse @ deviation) / size
    assert prior.variances["all"] == pytest.approx(float(expected), rel=1e-8)


def test_kl_at_the_optimal_variances_collapses():
    net = Net()
    posterior = deelbo.IsotropicPosterior(net, init_scale=0.03)
    prior = deelbo.priors.l2_zero(net, head="head")
    prior.update_variances(posterior)
    sizes = {name: group.num_params for name, group in prior.named_groups().items()}
    terms = [n * (math.log(prior.variances[name]) - 2 * math.log(posterior.scale.item())) for name, n in sizes.items()]
    assert float(prior.kl(posterior)) == pytest.approx(0.5 * sum(terms), rel=1e-10)


def test_paper_formulas_of_lambda_and_tau():
    net = Net()
    prior = deelbo.priors.l2_sp(net, head="head")
    start = {name: p.detach().clone() for name, p in net.named_parameters()}
    for p in net.parameters():
        p.data.add_(torch.randn_like(p))
    posterior = deelbo.IsotropicPosterior(net, init_scale=0.05)
    prior.update_variances(posterior)
    backbone = [name for name in start if not name.startswith("head")]
    moved = sum((posterior.means[name] - start[name]).square().sum().item() for name in backbone)
    size = sum(start[name].numel() for name in backbone)
    assert prior.variances["backbone"] == pytest.approx(0.05**2 + moved / size, rel=1e-10)
    head = sum(float(p.detach().square().sum()) for p in net.head.parameters())
    assert prior.variances["head"] == pytest.approx(0.05**2 + head / (7 * 3 + 3), rel=1e-10)


def test_kl_uses_the_means_inside_a_draw_and_log_prob_the_draw():
    net = Net()
    posterior = deelbo.IsotropicPosterior(net, init_scale=0.5)
    prior = deelbo.priors.l2_zero(net, head="head")
    kl, log_prob = prior.kl(posterior), prior.log_prob()
    with posterior.sample():
        assert prior.kl(posterior) == kl
        assert prior.log_prob() != log_prob


def test_fixed_variances_stay():
    net = Net()
    groups = {"all": PriorGroup(net.parameters(), variance=0.3, learned=False)}
    prior = GaussianPrior(groups)
    prior.update_variances(deelbo.IsotropicPosterior(net))
    assert prior.variances == {"all": 0.3}
    prior.set_variances({"all": 2})
    assert prior.variances == {"all": 2.0}


def test_variance_is_learned_with_float64_precision_from_float32_weights():
    net = Bare((5_000_000,), dtype=torch.float32)
    posterior = deelbo.IsotropicPosterior(net)
    prior = GaussianPrior({"all": PriorGroup(net.parameters())})
    prior.update_variances(posterior)
    expected = float(net.p0.detach().double().square().mean()) + posterior.scale.item() ** 2
    assert prior.variances["all"] == pytest.approx(expected, rel=1e-12)


def test_wrong_groups_are_refused():
    net = Net()
    with pytest.raises(ValueError, match='"0" is in the groups "a" and "b"'):
        GaussianPrior({"a": PriorGroup([net.head.bias]), "b": PriorGroup([net.head.bias])})
    with pytest.raises(ValueError, match="at least one group"):
        GaussianPrior({})
    with pytest.raises(ValueError, match="at least one parameter"):
        PriorGroup([])
    with pytest.raises(ValueError, match="mean must be a vector of the 3 weights"):
        PriorGroup([net.head.bias], mean=torch.zeros(4))
    with pytest.raises(ValueError, match="mean must be one tensor for each of the 1 parameters"):
        PriorGroup([net.head.bias], mean=[torch.zeros(4)])
    for bad in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="must be positive"):
            PriorGroup([net.head.bias], variance=bad)
    prior = deelbo.priors.l2_zero(net, head="head")
    with pytest.raises(ValueError, match='no group "bakbone"; its groups: backbone, head'):
        prior.set_variances({"bakbone": 1.0})


def test_states_go_by_the_name_of_the_group():
    net = Net()
    groups = {"a.b": list(net.head.parameters()), "c": [net.body.weight]}
    first = GaussianPrior({name: PriorGroup(weights) for name, weights in groups.items()})
    first.set_variances({"a.b": 2, "c": 3})
    second = GaussianPrior({name: PriorGroup(groups[name]) for name in ("c", "a.b")})
    second.load_state_dict(first.state_dict())
    assert second.variances == {"c": 3.0, "a.b": 2.0}
    with pytest.raises(ValueError, match="no elements"):
        PriorGroup([torch.nn.Parameter(torch.zeros(0))])
