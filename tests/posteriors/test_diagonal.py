import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import Independent, Normal

import deelbo
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
            triples = zip(posterior._random, posterior._saved, scales, strict=True)
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
