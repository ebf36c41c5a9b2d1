"""Objectives over eta against the library's own estimates at single values, in float64."""

import pytest
import torch
from torch import nn

import deelbo
from deelbo.reproduce.eta import ETAS, draw, importance_weighted_over_eta, objective_over_eta


@pytest.fixture
def made():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3)).double()
    x, y = torch.randn(20, 4, dtype=torch.float64), torch.randint(3, (20,))
    prior = deelbo.priors.l2_sp(network, head="3")
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    posterior = deelbo.IsotropicPosterior(network, init_scale=0.05, seed=0)
    objective = deelbo.DataEmphasizedELBO(posterior, prior, num_data=20, kappa=3.0)
    return objective, lambda: -nn.functional.cross_entropy(network(x), y, reduction="sum")


@pytest.mark.parametrize("kappa", [1.0, 3.0])
def test_both_are_the_librarys_estimates(made, kappa):
    objective, log_likelihood = made
    draws = draw(objective, log_likelihood, 7)
    etas = (1e-3, 0.02, 5.0)
    plain = objective_over_eta(objective, draws, kappa, etas)
    weighted = importance_weighted_over_eta(objective, draws, kappa, etas)
    objective.kappa = kappa
    for eta, found, other in zip(etas, plain, weighted, strict=True):
        objective.prior.set_variances({"backbone": eta, "head": eta})
        assert found == pytest.approx(float(objective.estimate(log_likelihood, samples=7)))
        assert other == pytest.approx(float(objective.estimate_importance_weighted(log_likelihood, samples=7)))


def test_the_objective_is_left_as_it_was(made):
    objective, log_likelihood = made
    network = objective.posterior.model
    objective.prior.set_variances({"backbone": 0.3, "head": 0.7})
    before = {name: value.clone() for name, value in network.state_dict().items()}

    def with_statistics():  # as where each draw gets statistics of its own
        network[1].running_mean += 1
        return log_likelihood()

    objective_over_eta(objective, draw(objective, with_statistics, 2), 1.0)
    assert objective.prior.variances == {"backbone": 0.3, "head": 0.7}
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_the_best_eta_is_the_closed_form(made):
    """With one group the best variance is that of eq:lambda_update."""
    objective, log_likelihood = made
    network = objective.posterior.model
    group = deelbo.priors.PriorGroup(dict(network.named_parameters()))
    single = deelbo.DataEmphasizedELBO(objective.posterior, deelbo.priors.GaussianPrior({"all": group}), 20)
    values = objective_over_eta(single, draw(single, log_likelihood, 1), 1.0)
    single.prior.update_variances(single.posterior)
    nearest = min(ETAS, key=lambda eta: abs(torch.tensor(eta / group.variance).log()))
    assert ETAS[values.index(max(values))] == pytest.approx(nearest, rel=1.01)


def test_eta_goes_from_1e_8_to_100():
    assert (ETAS[0], ETAS[-1]) == pytest.approx((1e-8, 1e2))
