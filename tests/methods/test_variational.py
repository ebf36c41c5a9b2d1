"""DE-ELBO and ELBO in the training loop."""

import math

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from deelbo.training.loop import View
from shared.candidates import candidate
from shared.digits import digits, quick
from shared.methods import MethodCase, view


def test_de_elbo_learns_and_elbo_collapses():
    _, test_set = digits()
    accuracies = {}
    for method in ("de-elbo", "elbo"):
        result = quick(method=method, prior="l2-zero", steps=200, lr_search="grid")
        accuracies[method] = result.evaluate(test_set)["accuracy"]
    assert accuracies["de-elbo"] > 0.75
    assert accuracies["elbo"] < 0.4
    assert result.scale > 0
    assert set(result.prior_variances) == {"backbone", "head"}


def test_an_early_look_is_the_objective_at_the_best_scale():
    """With a tiny scale, the first moves of the means cost more than they gain, and a large rate looks worst."""
    fast, slow = candidate(steps=200, rate=0.1, init_scale=1e-4), candidate(steps=200, rate=0.0001, init_scale=1e-4)
    for running in (fast, slow):
        for _ in running.advance(8):
            pass
    raw = [running.method.objective(View(running, list(range(96))), 3) for running in (fast, slow)]
    assert raw[0] < raw[1]
    early = [running.objective(final=False) for running in (fast, slow)]
    assert early[0] > early[1]
    assert early[0] > raw[0]
    best = fast.method.posterior.scale.item() / 4
    values = []
    for factor in (1 / 16, 1, 16):
        fast.method.posterior.set_scale(best * factor)
        assert fast.method.posterior.scale.item() == pytest.approx(best * factor, rel=1e-5)
        values.append(fast.method.objective(View(fast, list(range(96))), 3))
    assert max(values) == values[1]


def kl(case, weights, scale, variances):
    """Written out by torch.distributions."""
    return sum(
        kl_divergence(Normal(weight, scale), Normal(case.centre[name], math.sqrt(variances[case.group_of(name)]))).sum()
        for name, weight in weights.items()
    )


def best_variances(case, scale):
    """The variances at which the KL is smallest: scale^2 + |mean - centre|^2 / D of each group."""
    found = {}
    for group in ("backbone", "head"):
        names = [name for name, _ in case.net.named_parameters() if case.group_of(name) == group]
        moved = [(case.net.get_parameter(name).detach() - case.centre[name]).flatten() for name in names]
        found[group] = scale**2 + float(torch.cat(moved).square().mean())
    return found


@pytest.mark.parametrize(
    ("name", "given", "kappa"), [("de-elbo", {}, 80 / 12), ("de-elbo", {"kappa": 3.0}, 3.0), ("elbo", {}, 1.0)]
)
def test_kappa(name, given, kappa):
    case = MethodCase(name, **given)
    assert sum(p.numel() for p in case.net.parameters()) == 80
    assert case.method.learned()["kappa"] == pytest.approx(kappa, rel=1e-15)
    assert case.method.objective_scale == pytest.approx(12 * kappa, rel=1e-15)


@pytest.mark.parametrize("name", ["de-elbo", "elbo"])
def test_gradients_are_those_of_a_draw_and_the_kl(name):
    case = MethodCase(name, init_scale=0.2, scale_update="gradient")
    means = {n: p.detach().clone().requires_grad_() for n, p in case.net.named_parameters()}
    drawn, at_unscale = {}, []

    def add_loss_gradient():
        drawn.update({n: p.detach().clone() for n, p in case.net.named_parameters()})
        case.loss().backward()

    case.method.add_gradients(add_loss_gradient, lambda: at_unscale.append(case.net.body.weight.grad.clone()))
    assert not torch.equal(drawn["body.weight"], case.net.body.weight)
    loss = case.loss({n: mean + (drawn[n] - mean).detach() for n, mean in means.items()})
    alone = torch.autograd.grad(loss, means["body.weight"], retain_graph=True)[0]
    torch.testing.assert_close(at_unscale, [alone])  # before the KL's part, which is never scaled
    variances = best_variances(case, 0.2)
    assert case.prior.variances == pytest.approx(variances, rel=1e-8)
    whole = loss + kl(case, means, 0.2, variances) / case.method.objective_scale
    expected = torch.autograd.grad(whole, list(means.values()))
    torch.testing.assert_close([p.grad for p in case.net.parameters()], list(expected), rtol=1e-7, atol=1e-10)
    assert case.net.body.weight.detach().equal(means["body.weight"].detach())
    assert {id(p) for p in case.method.parameters()} >= {id(p) for p in case.net.parameters()}


def test_objective_and_learned_values_are_the_definition():
    case = MethodCase("de-elbo", init_scale=0.2)
    weights, variances = {n: p.detach() for n, p in case.net.named_parameters()}, best_variances(case, 0.2)
    value = float(kl(case, weights, 0.2, variances))
    kappa = 80 / 12
    assert case.method.objective(view(lambda: -7.0), samples=3) == pytest.approx(-7.0 * kappa - value, rel=1e-8)
    learned = case.method.learned()
    assert learned["kl"] == pytest.approx(value / (12 * kappa), rel=1e-8)
    assert learned["scale"] == pytest.approx(0.2, rel=1e-8)
    assert learned["variance_head"] == pytest.approx(variances["head"], rel=1e-8)


def test_an_optimistic_objective_is_the_best_over_larger_scales():
    case = MethodCase("de-elbo", init_scale=0.01)

    def value(scale):
        """A log-likelihood that falls with the scale, so that one in the middle is best."""
        weights = {n: p.detach() for n, p in case.net.named_parameters()}
        return -100 * scale**2 * 80 / 12 - float(kl(case, weights, scale, best_variances(case, scale)))

    grid = [value(0.01 * 4**i) for i in range(6)]
    assert 0 < grid.index(max(grid)) < 5
    found = case.method.optimistic_objective(view(lambda: -100 * case.method.posterior.scale.item() ** 2), samples=1)
    assert found == pytest.approx(max(grid), rel=1e-5)


def test_a_state_is_continued():
    case, other = MethodCase("de-elbo", init_scale=0.2), MethodCase("de-elbo", init_scale=0.5, seed=9)
    case.method.add_gradients(lambda: case.loss().backward(), lambda: None)
    state = {name: value.clone() for name, value in case.method.state_dict().items()}
    other.method.load_state_dict(state)
    assert other.method.learned() == case.method.learned()
    case.net.zero_grad()
    for each in (case, other):
        each.method.add_gradients(lambda each=each: each.loss().backward(), lambda: None)
    assert torch.equal(case.net.body.weight.grad, other.net.body.weight.grad)  # the same next draw


@pytest.mark.parametrize("draws", [1, 2])
def test_a_diagonal_posterior_has_its_own_kl(draws):
    case = MethodCase("de-elbo", init_scale=0.2, posterior="diagonal", draws=draws)
    for raw in case.method.posterior.raw_scale:
        raw.data.add_(0.3 * torch.randn_like(raw))
    scales, calls = case.method.posterior.scales, []
    value, total = 0.0, {"backbone": [], "head": []}
    for name, weight in case.net.named_parameters():
        total[case.group_of(name)].append(
            (scales[name].square() + (weight.detach() - case.centre[name]).square()).flatten()
        )
    for name, weight in case.net.named_parameters():
        variance = float(torch.cat(total[case.group_of(name)]).mean())
        prior = Normal(case.centre[name], math.sqrt(variance))
        value += float(kl_divergence(Normal(weight.detach(), scales[name]), prior).sum())
    found = case.method.objective(view(lambda: -7.0), samples=2)
    assert found == pytest.approx(-7.0 * 80 / 12 - value, rel=1e-8)
    case.method.add_gradients(lambda: (calls.append(1), case.loss().backward()), lambda: None)
    assert len(calls) == draws
    assert case.method.warnings()[0].startswith("posterior='diagonal': each of its scales has a gradient of about 1/D")
    assert MethodCase("de-elbo", posterior="diagonal", optimizer="adamw").method.warnings() == []
    assert MethodCase("elbo").method.warnings() == []
