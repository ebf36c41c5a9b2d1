import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import Independent, Normal

import deelbo
from shared.cases import Bare, Net, batch


def noise_of(posterior):
    """Return the noise of the draw in place, recovered in float64."""
    return [
        (p - s).detach() / posterior.scale.detach()
        for p, s in zip(posterior._random, posterior._saved.means, strict=True)
    ]


@settings(deadline=None, max_examples=15)
@given(
    hidden=st.integers(1, 9),
    samples=st.integers(1, 3),
    micro_batches=st.integers(1, 2),
    scale=st.floats(1e-4, 1.0),
    accumulated=st.booleans(),
)
def test_gradients_of_several_samples_agree_with_autograd(hidden, samples, micro_batches, scale, accumulated):
    torch.manual_seed(hidden)
    net = Net(hidden=hidden)
    posterior = deelbo.IsotropicPosterior(net, init_scale=scale, scale_update="gradient")
    x, y = batch()
    if accumulated:  # gradients left from before, as in gradient accumulation
        F.cross_entropy(net(x), y).backward()
    start = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in net.parameters()]
    noises = []
    for _ in range(samples):
        with posterior.sample():
            noises.append(noise_of(posterior))
            for part in range(micro_batches):
                loss = F.cross_entropy(net(x[part::micro_batches]), y[part::micro_batches])
                (loss / samples / micro_batches).backward()

    means = {name: p.detach().clone().requires_grad_() for name, p in net.named_parameters()}
    raw = posterior.raw_scale.detach().clone().requires_grad_()
    total = 0.0
    for noise in noises:
        drawn = {name: m + F.softplus(raw) * e for (name, m), e in zip(means.items(), noise, strict=True)}
        for part in range(micro_batches):
            output = torch.func.functional_call(net, drawn, (x[part::micro_batches],))
            total = total + F.cross_entropy(output, y[part::micro_batches]) / samples / micro_batches
    total.backward()
    for p, (name, mean), before in zip(net.parameters(), means.items(), start, strict=True):
        torch.testing.assert_close(p.grad, mean.grad + before, rtol=1e-8, atol=1e-10, msg=name)
    torch.testing.assert_close(posterior.raw_scale.grad, raw.grad, rtol=1e-8, atol=1e-10)


def test_gradients_cleared_inside_the_block_do_not_count():
    gradients = []
    for inside in (False, True):
        torch.manual_seed(0)
        net = Net()
        posterior = deelbo.IsotropicPosterior(net, seed=1)
        optimizer = torch.optim.SGD(posterior.parameters(), lr=0.1)
        x, y = batch()
        for _ in range(2):
            if not inside:
                optimizer.zero_grad()
            with posterior.sample():
                if inside:
                    optimizer.zero_grad()
                F.cross_entropy(net(x), y).backward()
        gradients.append(float(posterior.raw_scale.grad))
    assert gradients[0] == pytest.approx(gradients[1], rel=1e-12)


@pytest.mark.parametrize("set_to_none", [True, False])
def test_model_zero_grad_clears_the_scale_as_well(set_to_none):
    gradients = []
    for steps in (1, 2):
        torch.manual_seed(0)
        net = Net()
        posterior = deelbo.IsotropicPosterior(net, scale_update="gradient")
        objective = deelbo.DataEmphasizedELBO(posterior, deelbo.priors.l2_zero(net, head="head"), 12)
        x, y = batch()
        for _ in range(steps):
            net.zero_grad(set_to_none=set_to_none)
            with posterior.sample(seed=4):
                F.cross_entropy(net(x), y).backward()
            gradients.append(float(posterior.raw_scale.grad))
            objective.backward()
    assert gradients[0] == gradients[1] == gradients[2]


def test_draws_without_gradients_leave_the_scale_alone():
    net = Net()
    posterior = deelbo.IsotropicPosterior(net)
    x, y = batch()
    with posterior.sample():
        F.cross_entropy(net(x), y).backward()
    before = posterior.raw_scale.grad.clone()
    with torch.no_grad(), posterior.sample():
        net(x)
    assert torch.equal(posterior.raw_scale.grad, before)


def test_unused_parameters_are_perturbed_and_restored():
    net = Net()
    net.unused = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))
    posterior = deelbo.IsotropicPosterior(net)
    x, y = batch()
    with posterior.sample():
        F.cross_entropy(net(x), y).backward()
        assert (net.unused != 1).all()
    assert (net.unused == 1).all()
    assert net.unused.grad is None


@settings(deadline=None, max_examples=15)
@given(
    shapes=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 5)), min_size=1, max_size=3), scale=st.floats(1e-3, 3.0)
)
def test_log_prob_agrees_with_torch_distributions(shapes, scale):
    net = Bare(*shapes)
    posterior = deelbo.IsotropicPosterior(net, init_scale=scale)
    mean = net.vector()
    q = Independent(Normal(mean, posterior.scale.detach().expand_as(mean)), 1)
    torch.testing.assert_close(posterior.log_prob(), q.log_prob(mean), rtol=1e-10, atol=1e-8)
    with posterior.sample():
        torch.testing.assert_close(posterior.log_prob(), q.log_prob(net.vector()), rtol=1e-10, atol=1e-8)
        with posterior.at_mean():
            torch.testing.assert_close(posterior.log_prob(), q.log_prob(mean), rtol=1e-10, atol=1e-8)


def test_float32_draws_have_the_right_scale():
    net = torch.nn.Linear(1000, 1000)
    before = net.weight.detach().clone()
    posterior = deelbo.IsotropicPosterior(net, init_scale=1e-4)
    with posterior.sample():
        noise = (net.weight.detach() - before).double()
    assert float(noise.std()) == pytest.approx(1e-4, rel=5e-3)
    assert abs(float(noise.mean())) < 5e-7


def test_tiny_scale_survives_softplus():
    assert deelbo.IsotropicPosterior(Net(dtype=torch.float32), init_scale=1e-6).scale.item() == pytest.approx(1e-6)
    assert deelbo.IsotropicPosterior(Net(), init_scale=30.0).scale.item() == pytest.approx(30.0)
