import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from torch.distributions import Independent, Normal, kl_divergence

import deelbo
from deelbo.priors import GaussianPrior, PriorGroup
from shared.cases import Bare, Net, batch


def spread(posterior):
    """Give every weight another scale."""
    for raw in posterior.raw_scale:
        raw.data.add_(torch.randn_like(raw))


@settings(deadline=None, max_examples=10)
@given(hidden=st.integers(1, 9), samples=st.integers(1, 3))
def test_gradients_agree_with_autograd(hidden, samples):
    torch.manual_seed(hidden)
    net = Net(hidden=hidden)
    posterior = deelbo.DiagonalPosterior(net, init_scale=0.1)
    spread(posterior)
    x, y = batch()
    noises = []
    for _ in range(samples):
        with posterior.sample():
            scales = [F.softplus(raw.detach()) for raw in posterior.raw_scale]
            triples = zip(posterior._random, posterior._saved.means, scales, strict=True)
            noises.append([(drawn - mean).detach() / scale for drawn, mean, scale in triples])
            (F.cross_entropy(net(x), y) / samples).backward()
    means = {name: p.detach().clone().requires_grad_() for name, p in net.named_parameters()}
    raws = [raw.detach().clone().requires_grad_() for raw in posterior.raw_scale]
    total = 0.0
    for noise in noises:
        drawn = {n: m + F.softplus(r) * e for (n, m), r, e in zip(means.items(), raws, noise, strict=True)}
        total = total + F.cross_entropy(torch.func.functional_call(net, drawn, (x,)), y) / samples
    total.backward()
    for p, mean in zip(net.parameters(), means.values(), strict=True):
        torch.testing.assert_close(p.grad, mean.grad, rtol=1e-8, atol=1e-10)
    for raw, reference in zip(posterior.raw_scale, raws, strict=True):
        torch.testing.assert_close(raw.grad, reference.grad, rtol=1e-8, atol=1e-10)


def test_log_prob_agrees_with_torch_distributions():
    net = Bare((3, 4), (5,))
    posterior = deelbo.DiagonalPosterior(net, init_scale=0.2)
    spread(posterior)
    q = Independent(Normal(net.vector(), posterior.scale.detach()), 1)
    torch.testing.assert_close(posterior.log_prob(), q.log_prob(net.vector()))
    with posterior.sample():
        torch.testing.assert_close(posterior.log_prob(), q.log_prob(net.vector()))
    assert posterior.scale.shape == (17,)


def test_vanishing_scales_stay_finite():
    net = Bare((3,), dtype=torch.float32)
    posterior = deelbo.DiagonalPosterior(net)
    posterior.raw_scale[0].data.fill_(-120)
    prior = deelbo.priors.GaussianPrior({"all": deelbo.priors.PriorGroup(net.parameters())})
    assert prior.kl(posterior).isfinite()


@pytest.mark.parametrize("learned", [True, False])
def test_the_common_factor_is_where_the_objective_is_smallest(learned):
    """Against a search over the factor c of kappa N h c^2 / 2 + KL, the KL by torch.distributions."""
    torch.manual_seed(0)
    net = Net()
    posterior = deelbo.DiagonalPosterior(net, init_scale=0.05, scale_update="closed-form")
    spread(posterior)
    weights = list(net.parameters())
    parts = {"first": weights[:2], "rest": weights[2:]}
    prior = GaussianPrior({name: PriorGroup(ws, variance=0.5, learned=learned) for name, ws in parts.items()})
    scales = {id(p): F.softplus(raw.detach()) for p, raw in zip(weights, posterior.raw_scale, strict=True)}
    emphasis, products = 60.0 if learned else 100.0, []
    for raw in posterior.raw_scale:  # as if a draw had given these gradients
        product = torch.rand_like(raw) / 40  # gradient * noise of each weight
        raw.grad = product * torch.sigmoid(raw.detach()) / F.softplus(raw.detach())
        products.append(float(product.sum()))

    def loss(log_factor):
        factor, value = math.exp(log_factor), 0.5 * emphasis * sum(products) * math.exp(2 * log_factor)
        for group in parts.values():
            mean = torch.cat([w.detach().flatten() for w in group])
            scale = factor * torch.cat([scales[id(w)].flatten() for w in group])
            variance = float((scale.square() + mean.square()).mean()) if learned else 0.5
            value += float(kl_divergence(Normal(mean, scale), Normal(torch.zeros_like(mean), variance**0.5)).sum())
        return value

    best = math.exp(minimize_scalar(loss, bounds=(-0.6, 0.18), method="bounded", options={"xatol": 1e-10}).x)
    assert 0.55 < best < 1.15  # inside of what one step may change
    before = posterior.typical_scale
    prior.update_variances(posterior, lambda terms: posterior.update_scale(terms, emphasis, 1.0))
    assert posterior.typical_scale / before == pytest.approx(best, rel=1e-5)
    for name, scale in posterior.scales.items():
        torch.testing.assert_close(scale, best * scales[id(net.get_parameter(name))], rtol=1e-5, atol=0)


def test_scales_by_name():
    net = Net()
    posterior, other = deelbo.DiagonalPosterior(net, init_scale=0.1), deelbo.DiagonalPosterior(net, init_scale=3.0)
    spread(posterior)
    other.set_scales(posterior.scales)
    torch.testing.assert_close(other.scale, posterior.scale, rtol=1e-12, atol=0)
    assert posterior.typical_scale == pytest.approx(float(posterior.scale.detach().log().mean().exp()), rel=1e-12)
    before = posterior.scale.clone()
    posterior.multiply_scale(4)
    torch.testing.assert_close(posterior.scale, 4 * before, rtol=1e-12, atol=0)
    with pytest.raises(ValueError, match=r'no scale of the shape .* for the weight "body\.weight"'):
        other.set_scales({})
