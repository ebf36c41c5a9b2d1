"""Weights in bfloat16, whose means are kept in float32."""

import copy
import gc
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import deelbo
from deelbo.posteriors.masters import mean_of
from shared.bfloat16 import make, rounded_means, train
from shared.cases import Net, batch, copies, same


class Vector(nn.Module):
    """One vector of weights."""

    def __init__(self, values):
        super().__init__()
        self.weight = nn.Parameter(values)


def test_everybody_but_the_network_sees_float32():
    net, objective, _ = make()
    assert {p.dtype for p in net.parameters()} == {torch.bfloat16}
    assert {p.dtype for p in objective.posterior.parameters()} == {torch.float32}
    assert list(objective.posterior.means) == [name for name, _ in net.named_parameters()]
    names = [name for name, _ in objective.posterior.named_parameters()]
    assert names == [*objective.posterior.means, "raw_scale"]
    assert objective.posterior.scale_parameters() == [objective.posterior.raw_scale]
    held = {id(p) for group in objective.prior.named_groups().values() for p in group.weights}
    assert held == {id(p) for p in objective.posterior.means.values()}
    assert objective.posterior.num_params == sum(p.numel() for p in net.parameters())


def test_outside_a_draw_the_network_is_the_mean_rounded_to_the_nearest():
    net, objective, optimizer = make()
    before = copies(net)
    train(net, objective, optimizer)
    assert not same(net, before)
    assert same(net, rounded_means(objective))
    means = [mean.detach() for mean in objective.posterior.means.values()]
    assert any(not torch.equal(mean, mean.bfloat16().float()) for mean in means)  # more than the network has


def test_small_steps_add_up():
    """Each changes a weight by a tenth of the distance to the next bfloat16 number; in bfloat16 alone none would."""
    net = Vector(torch.ones(10).bfloat16())
    plain = Vector(torch.ones(10).bfloat16())
    posterior = deelbo.IsotropicPosterior(net)
    for optimized in (posterior.means.values(), plain.parameters()):
        optimizer = torch.optim.SGD(optimized, lr=2**-7 / 10)
        for _ in range(20):
            for parameter in optimizer.param_groups[0]["params"]:
                parameter.grad = -torch.ones_like(parameter)
            optimizer.step()
    assert torch.equal(plain.weight.detach(), torch.ones(10).bfloat16())
    assert torch.equal(net.weight.detach(), torch.full((10,), 1 + 2 * 2**-7).bfloat16())


def test_a_draw_is_the_mean_with_noise_rounded_without_bias():
    scale, number = 1e-4, 300_000
    net = Vector((0.05 * torch.randn(number)).bfloat16())
    posterior = deelbo.IsotropicPosterior(net, init_scale=scale, seed=3)
    mean = posterior.means["weight"]
    with torch.no_grad():
        mean.add_(1e-4 * torch.randn(number))  # no longer what bfloat16 has
    with posterior.sample(), torch.no_grad():
        drawn = net.weight.double()
        with posterior.at_draw():
            exact = mean.double()
    noise = (exact - mean.detach().double()) / scale
    assert abs(float(noise.mean())) < 5 / math.sqrt(number)
    assert float(noise.var()) == pytest.approx(1, abs=5 * math.sqrt(2 / number) + 1e-3)
    error = drawn - exact
    spacing = 2.0 ** (exact.abs().log2().floor() - 7)
    assert bool((error.abs() <= spacing).all())
    assert abs(float((error / spacing).mean())) < 5 * float((error / spacing).std()) / math.sqrt(number)
    # Uncorrelated with the noise; rounded to the nearest, small noise would be lost, and the correlation negative.
    assert abs(float((error / spacing * noise).mean())) < 5 / math.sqrt(number)
    nearest = exact.float().bfloat16().double() - mean.detach().bfloat16().double()
    assert float((nearest == 0).double().mean()) > 0.3


def test_draws_are_functions_of_their_key():
    net, objective, _ = make(init_scale=0.1)
    posterior = objective.posterior
    draws = []
    for seed in (1, 1, 2):
        with posterior.sample(seed=seed), torch.no_grad():
            draws.append(copies(net))
    assert all(torch.equal(draws[0][name], draws[1][name]) for name in draws[0])
    assert not any(torch.equal(draws[0][name], draws[2][name]) for name in draws[0])


def test_the_gradient_of_the_scale_has_the_noise_before_rounding():
    """E<g, scale eps> = scale^2 tr H; with the rounded noise it would be larger by sum_i H_ii Var(rounding error)."""
    scale, number, draws = 1e-4, 20_000, 40
    net = Vector((0.05 * torch.randn(number)).bfloat16())
    centre, curvature = net.weight.detach().double(), torch.rand(number).double()
    posterior = deelbo.IsotropicPosterior(net, init_scale=scale, seed=3)
    products, rounded = [], []
    for _ in range(draws):
        with posterior.sample():
            move = net.weight.double() - centre
            (0.5 * curvature * move.square()).sum().backward()
            rounded.append(float((curvature * move.detach().square()).sum()))
        products.append(float(posterior.raw_scale.grad))
        posterior.zero_grad()
    expected = scale**2 * float(curvature.sum())
    products = torch.tensor(products).double()
    assert abs(float(products.mean()) - expected) < 5 * float(products.std()) / math.sqrt(draws)
    assert float(products.std()) / math.sqrt(draws) < 0.01 * expected
    assert sum(rounded) / draws > 1.5 * expected


def test_gradients_are_added_in_float32():
    net, objective, _ = make(init_scale=0.1)
    posterior = objective.posterior
    x, y = batch(dtype=torch.bfloat16)
    expected = {name: torch.zeros_like(mean) for name, mean in posterior.means.items()}
    for _ in range(3):
        posterior.begin(posterior.next_key(), track=False)
        grads = torch.autograd.grad(F.cross_entropy(net(x).float(), y), list(net.parameters()))
        posterior.end()
        for total, grad in zip(expected.values(), grads, strict=True):
            total += grad.float()
    posterior.draws = 0
    for _ in range(3):
        with posterior.sample():
            F.cross_entropy(net(x).float(), y).backward()
    assert all(torch.equal(mean.grad, expected[name]) for name, mean in posterior.means.items())
    assert all(p.grad is None for p in net.parameters())


def test_the_networks_zero_grad_is_enough():
    one, other = make(), make()
    train(*one)
    train(*other, zero_grad=other[0].zero_grad)
    assert same(one[0], copies(other[0]))


def regression(dtype, steps=400, seed=1):
    """Train a linear model, and return the scale of its posterior and the variance of its prior."""
    torch.manual_seed(0)
    x = torch.randn(200, 30).bfloat16().double()
    y = x @ torch.randn(30).double() / 5
    net = Vector(torch.zeros(30, dtype=dtype))
    posterior = deelbo.IsotropicPosterior(net, seed=seed)
    prior = deelbo.priors.GaussianPrior({"all": deelbo.priors.PriorGroup(net.parameters())})
    objective = deelbo.DataEmphasizedELBO(posterior, prior, num_data=200)
    optimizer = torch.optim.SGD(posterior.parameters(), lr=0.3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)  # so that the noise averages out
    for _ in range(steps):
        optimizer.zero_grad()
        with posterior.sample():
            (50 * (x @ net.weight.double() - y).square().mean()).div(100).backward()
        objective.backward()
        optimizer.step()
        schedule.step()
    prior.update_variances(posterior)
    return posterior.typical_scale, prior.variances["all"]


def test_scale_and_variance_are_those_of_float64():
    """On average over three seeds, each of which changes them by 1 to 2 per cent."""
    found, reference = (
        torch.tensor([regression(dtype, seed=seed) for seed in (1, 2, 3)]).mean(0)
        for dtype in (torch.bfloat16, torch.float64)
    )
    assert torch.allclose(found, reference, rtol=0.025)


def test_resuming_is_bit_for_bit():
    uninterrupted = make()
    train(*uninterrupted, steps=5)
    first = make()
    train(*first, steps=2)
    states = [copy.deepcopy(part.state_dict()) for part in first]
    for order in ((0, 1, 2), (1, 0, 2)):
        second = make()
        train(*second, steps=1)  # so that there is something to be replaced
        for i in order:
            second[i].load_state_dict(copy.deepcopy(states[i]))
        train(*second, steps=3)
        assert same(second[0], copies(uninterrupted[0]))
        assert all(
            torch.equal(mean, uninterrupted[1].posterior.means[name])
            for name, mean in second[1].posterior.means.items()
        )
        assert second[1].summary() == uninterrupted[1].summary()


def test_the_objectives_state_alone_brings_the_network_back():
    net, objective, optimizer = make()
    train(net, objective, optimizer)
    other, its_objective, _ = make()
    its_objective.load_state_dict(objective.state_dict())
    assert same(other, copies(net))


def test_masters_take_over_weights_that_were_loaded_into_the_network():
    net, objective, optimizer = make()
    train(net, objective, optimizer)
    kept = objective.posterior.means["head.weight"].detach().clone()
    net.body.load_state_dict(Net(dtype=torch.float32).bfloat16().body.state_dict())
    before = copies(net)
    with objective.posterior.sample():
        pass
    assert same(net, before)
    assert same(net, rounded_means(objective))
    assert torch.equal(objective.posterior.means["head.weight"], kept)  # not rounded: nobody has touched it


def test_an_optimizer_that_hides_its_changes_from_autograd():
    class Hidden(torch.optim.Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, {})

        def step(self, closure=None):
            for parameter in self.param_groups[0]["params"]:
                parameter.data.add_(1)

    net, objective, _ = make()
    before = copies(net)
    Hidden(list(objective.posterior.means.values())).step()
    assert same(net, {name: (value.float() + 1).bfloat16() for name, value in before.items()})
    with objective.posterior.sample():
        pass
    assert same(net, {name: (value.float() + 1).bfloat16() for name, value in before.items()})


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_the_mean_comes_back_after_an_exception(error):
    net, objective, _ = make(init_scale=0.1)
    before = copies(net)
    with pytest.raises(error), objective.posterior.sample():
        raise error
    assert same(net, before)


def test_the_mean_for_a_while_and_the_draw_again():
    net, objective, _ = make(init_scale=0.1)
    before = copies(net)
    with objective.posterior.sample():
        drawn = copies(net)
        with objective.posterior.at_mean():
            assert same(net, before)
        assert same(net, drawn)
    assert same(net, before)


def test_a_step_inside_the_block_is_refused():
    net, objective, optimizer = make()
    for mean in objective.posterior.means.values():
        mean.grad = torch.ones_like(mean)
    with pytest.raises(RuntimeError, match="after the block"), objective.posterior.sample():
        optimizer.step()
    assert same(net, rounded_means(objective))


def test_the_densities_are_those_of_the_draw_before_rounding():
    _, objective, _ = make(init_scale=0.1)
    posterior, prior = objective.posterior, objective.prior
    means = {name: mean.detach().double().clone() for name, mean in posterior.means.items()}
    with posterior.sample(), posterior.at_draw():
        drawn = {name: mean.detach().double().clone() for name, mean in posterior.means.items()}
        found = float(prior.log_prob()), float(posterior.log_prob())
    normal = torch.distributions.Normal
    centre = {name: 0 if name.startswith("head") else mean for name, mean in means.items()}
    assert found[0] == pytest.approx(
        sum(float(normal(centre[n], 1.0).log_prob(drawn[n]).sum()) for n in drawn), rel=1e-6
    )
    log_q = sum(float(normal(means[n], posterior.scale.detach().double()).log_prob(drawn[n]).sum()) for n in drawn)
    assert found[1] == pytest.approx(log_q, rel=1e-4)
    assert all(torch.equal(mean.double(), means[name]) for name, mean in posterior.means.items())


def test_float32_and_bfloat16_side_by_side():
    net = Net(dtype=torch.float32)
    net.body.bfloat16()
    net.forward = lambda x: net.head(torch.tanh(net.norm(net.body(x).float())))
    net, objective, optimizer = make(net=net, init_scale=0.1)
    posterior = objective.posterior
    assert posterior.means["body.weight"] is not net.body.weight
    assert posterior.means["head.weight"] is net.head.weight
    before = copies(net)
    train(net, objective, optimizer)
    after = copies(net)
    assert not any(torch.equal(before[name], after[name]) for name in before)
    with posterior.sample(), posterior.at_draw():
        noise = [(posterior.means["body.bias"] - rounded_means(objective)["body.bias"].float())[:3]]
    assert same(net, after)
    assert noise[0].abs().min() > 0


def test_channels_last_weights():
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8, 2)).bfloat16()
    posterior = deelbo.IsotropicPosterior(net, init_scale=0.1)
    net.to(memory_format=torch.channels_last)
    before = copies(net)
    with posterior.sample():
        net(torch.randn(5, 3, 3, 3).bfloat16()).float().square().mean().backward()
    assert same(net, before)
    assert all(mean.grad is not None and mean.grad.any() for mean in posterior.means.values())


def test_a_copy_has_masters_of_its_own():
    net, objective, optimizer = make()
    train(net, objective, optimizer)
    before = copies(net)
    other = copy.deepcopy(objective)
    theirs = other.posterior.model
    train(theirs, other, torch.optim.SGD(other.posterior.parameters(), lr=0.1))
    assert same(net, before)
    assert not same(theirs, before)
    assert same(theirs, rounded_means(other))
    deelbo.DataEmphasizedELBO(other.posterior, deelbo.priors.l2_zero(theirs, head="head"), 12)


def test_a_weight_has_one_master_for_as_long_as_somebody_needs_it():
    net = Net(dtype=torch.float32).bfloat16()
    prior = deelbo.priors.l2_zero(net, head="head")
    posterior = deelbo.IsotropicPosterior(net)
    deelbo.DataEmphasizedELBO(posterior, prior, 12)
    master = posterior.means["body.weight"]
    assert mean_of(net.body.weight) is master
    number = id(master)
    with torch.no_grad():
        master.zero_()
    del master, posterior, prior
    gc.collect()
    again = mean_of(net.body.weight)
    assert torch.equal(again, net.body.weight.float()), number
    assert mean_of(Net().body.weight).dtype == torch.float64


def test_what_is_refused():
    half = Net(dtype=torch.float32).half()
    with pytest.raises(ValueError, match=r'"body.weight" is float16, in which small gradients .*model.bfloat16\(\)'):
        deelbo.IsotropicPosterior(half)
    net = Net(dtype=torch.float32).bfloat16()
    with pytest.raises(ValueError, match=r'"body.weight" is bfloat16: use IsotropicPosterior'):
        deelbo.DiagonalPosterior(net)
    with pytest.raises(ValueError, match=r'deterministic parameter "norm.weight" is bfloat16.*float\(\)'):
        deelbo.IsotropicPosterior(net, deterministic=["norm"])
    posterior = deelbo.IsotropicPosterior(net)
    net.float()
    with pytest.raises(RuntimeError, match=r'"body.weight" became float32 .*make a new one'), posterior.sample():
        pass


def test_adapters_in_bfloat16():
    peft = pytest.importorskip("peft")
    base = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).bfloat16()
    lora = peft.LoraConfig(r=2, target_modules=["0"], modules_to_save=["2"])
    net = peft.get_peft_model(base, lora, autocast_adapter_dtype=False)
    prior = deelbo.priors.adapters(net)
    posterior = deelbo.IsotropicPosterior(net)
    objective = deelbo.DataEmphasizedELBO(posterior, prior, 12)
    frozen = {name: p.detach().clone() for name, p in net.named_parameters() if not p.requires_grad}
    train(net, objective, torch.optim.SGD(posterior.parameters(), lr=0.1), steps=10)
    assert {p.dtype for p in net.parameters()} == {torch.bfloat16}
    assert all(torch.equal(p, frozen[name]) for name, p in net.named_parameters() if not p.requires_grad)
    assert all(0 < variance < 1 for variance in prior.variances.values())


def test_the_noise_is_that_of_the_same_network_in_float32():
    net, objective, _ = make(init_scale=0.1)
    single = copy.deepcopy(net).float()
    theirs = deelbo.IsotropicPosterior(single, init_scale=0.1, seed=7)
    before = copies(single)
    with objective.posterior.sample(), objective.posterior.at_draw(), theirs.sample(), torch.no_grad():
        for name, weight in single.named_parameters():
            assert torch.allclose(objective.posterior.means[name], weight, atol=1e-6)
            assert not torch.allclose(weight, before[name], atol=1e-3)
