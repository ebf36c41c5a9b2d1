"""MAP in the training loop."""

import dataclasses
import math

import pytest
import torch
from torch.distributions import Normal

from deelbo.priors import GaussianPrior, PriorGroup
from deelbo.training.method import METHODS
from shared.digits import digits, quick
from shared.methods import MethodCase, view


def test_map_with_given_variances():
    result = quick(method="map", prior_variances={"backbone": 0.1, "head": 1.0})
    assert result.scale is None
    assert result.prior_variances == {"backbone": 0.1, "head": 1.0}
    assert result.evaluate(digits()[1])["accuracy"] > 0.6
    with pytest.raises(ValueError, match="lacks the groups head"):
        quick(method="map", prior_variances={"backbone": 0.1})


def test_flat_priors_in_map():
    options = {"method": "map", "learning_rates": (0.1,), "steps": 20}
    flat = quick(prior_variances={"backbone": "inf", "head": float("inf")}, **options)
    wide = quick(prior_variances={"backbone": 1e12, "head": 1e12}, **options)
    for a, b in zip(flat.model.parameters(), wide.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert flat.settings.as_dict()["prior_variances"] == {"backbone": "inf", "head": "inf"}
    assert torch.isfinite(torch.tensor(flat.objective))


VARIANCES = {"backbone": 0.3, "head": 2.0}


def log_prior(case, weights, variances):
    """Written out by torch.distributions."""
    return sum(
        Normal(case.centre[name], math.sqrt(variances[case.group_of(name)])).log_prob(weight).sum()
        for name, weight in weights.items()
        if variances[case.group_of(name)] < math.inf
    )


@pytest.mark.parametrize("variances", [VARIANCES, {**VARIANCES, "head": math.inf}])
def test_gradients_are_those_of_the_loss_and_the_prior(variances):
    case = MethodCase("map", prior_variances=variances)
    at_unscale = []
    case.method.add_gradients(
        lambda: case.loss().backward(), lambda: at_unscale.append(case.net.body.weight.grad.clone())
    )
    weights = {name: p.detach().clone().requires_grad_() for name, p in case.net.named_parameters()}
    loss = case.loss(weights)
    alone = torch.autograd.grad(loss, weights["body.weight"], retain_graph=True)[0]
    torch.testing.assert_close(at_unscale, [alone])  # before the prior's part, which is never scaled
    expected = torch.autograd.grad(loss - log_prior(case, weights, variances) / 12, list(weights.values()))
    torch.testing.assert_close([p.grad for p in case.net.parameters()], list(expected))


@pytest.mark.parametrize("variances", [VARIANCES, {**VARIANCES, "head": math.inf}])
def test_objective_and_penalty(variances):
    case = MethodCase("map", prior_variances=variances)
    expected = float(log_prior(case, dict(case.net.named_parameters()), variances).detach())
    assert case.method.objective(view(lambda: -7.0), samples=5) == pytest.approx(-7.0 + expected, rel=1e-12)
    assert case.method.optimistic_objective(view(lambda: -7.0), samples=5) == pytest.approx(-7.0 + expected, rel=1e-12)
    learned = case.method.learned()
    assert learned.pop("penalty") == pytest.approx(-expected / 12, rel=1e-12)
    assert learned == {f"variance_{name}": value for name, value in variances.items()}
    assert (case.method.objective_scale, case.method.posterior) == (12.0, None)


def test_the_objective_is_of_eval_mode():
    case = MethodCase("map", prior_variances=VARIANCES)
    modes = []
    case.net.train()
    case.method.objective(view(lambda: modes.append(case.net.training) or 0.0), samples=1)
    assert modes == [False]
    assert case.net.training


def test_every_weight_needs_a_variance():
    case = MethodCase("map", prior_variances=VARIANCES)
    with pytest.raises(ValueError, match="lacks the groups backbone, head"):
        METHODS["map"](case.inputs, {"other": 1.0})
    part = GaussianPrior({"head": PriorGroup(dict(case.net.head.named_parameters()))})
    with pytest.raises(ValueError, match=r"no group for 4 weights, such as 'body.weight'"):
        METHODS["map"](dataclasses.replace(case.inputs, prior=part), {"head": 1.0})
