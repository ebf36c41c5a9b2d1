import math

import pytest
import torch
from torch.distributions import Normal

import deelbo
from deelbo.likelihoods import Gaussian
from deelbo.likelihoods.gaussian import FLOOR


@pytest.mark.parametrize("shape", [(6,), (6, 1), (6, 3)])
def test_it_agrees_with_torch_distributions(shape):
    output = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    y = torch.randn(shape, dtype=torch.float64)
    likelihood = Gaussian(noise=0.3).double()
    noise = likelihood.noise
    expected = Normal(output, noise).log_prob(y).reshape(6, -1).sum(1)
    torch.testing.assert_close(likelihood.log_prob(output, y), expected)
    losses = likelihood(output, y), -expected.mean()
    for inputs in (output, likelihood.raw_noise):
        torch.testing.assert_close(*(torch.autograd.grad(loss, inputs, retain_graph=True)[0] for loss in losses))


def test_targets_are_standardised_inside():
    y = 1000 + 50 * torch.randn(200, 2, dtype=torch.float64)
    likelihood = Gaussian(noise=0.5).double()
    likelihood.fit(y, 2)
    location, spread = y.mean(0), y.std(0, correction=0)
    output = torch.randn(200, 2, dtype=torch.float64)
    standardised = Normal(output, likelihood.noise).log_prob((y - location) / spread).sum(1)
    torch.testing.assert_close(likelihood.log_prob(output, y), standardised)
    in_units = Normal(location + spread * output, spread * likelihood.noise).log_prob(y).sum(1)
    torch.testing.assert_close(standardised - spread.log().sum(), in_units)  # as the docstring says
    mean, std = likelihood.prediction(likelihood.averageable(output))
    torch.testing.assert_close(mean, location + spread * output)
    torch.testing.assert_close(std, (spread * likelihood.noise).expand(200, 2).detach())


def test_averaged_draws_add_their_spread():
    likelihood = Gaussian(noise=0.5)
    draws = [torch.tensor([[0.0]]), torch.tensor([[2.0]])]
    mean, std = likelihood.prediction(sum(likelihood.averageable(draw) for draw in draws) / 2)
    assert mean.item() == pytest.approx(1.0)
    assert std.item() == pytest.approx(math.sqrt(0.25 + 1.0), rel=1e-6)


def test_other_numbers_of_targets_are_refused():
    with pytest.raises(ValueError, match="the same numbers"):
        Gaussian()(torch.zeros(5, 2), torch.zeros(5))
    torch.testing.assert_close(Gaussian()(torch.zeros(5, 1), torch.ones(5)), Gaussian()(torch.zeros(5), torch.ones(5)))
    with pytest.raises(ValueError, match="floating-point"):
        Gaussian().check(torch.zeros(2, 1), torch.tensor([1, 2]))
    with pytest.raises(ValueError, match="the same number"):
        Gaussian().fit(torch.full((5,), 3.0), 1)
    with pytest.raises(ValueError, match="not a finite number"):
        Gaussian().fit(torch.tensor([1.0, math.nan]), 1)
    with pytest.raises(ValueError, match="no classes to balance"):
        Gaussian(class_weights="balanced")


def test_the_border_of_the_objective_is_guarded():
    """For kappa N K > D the objective has no maximum as the noise goes to zero."""
    likelihood = Gaussian.for_training("none")
    assert likelihood.default_kappa(1000, 50, 4) == 5.0
    assert likelihood.default_kappa(100, 50, 4) == 1.0
    assert likelihood.warnings(5.0, 1000, 50, 4) == []
    assert "grows without bound" in likelihood.warnings(20.0, 1000, 50, 4)[0]
    with torch.no_grad():
        likelihood.raw_noise.fill_(-50)
    assert likelihood.noise.item() == pytest.approx(FLOOR)
    assert likelihood.log_prob(torch.zeros(1, 1), torch.zeros(1, 1)).isfinite()


def test_the_objective_is_unbounded_above_the_border_and_not_at_it():
    """At an exact fit J is (D - kappa N K) log(noise) + const for the best scale, proportional to the noise."""
    num_params, num_data = 40, 10

    def objective(kappa, noise):  # theta = mean exactly fits; expected squared error of a linear model is scale^2
        scale = noise  # the maximiser of kappa N/(2 noise^2) scale^2 against D log scale, up to a constant factor
        expected = num_data * (-0.5 * (scale / noise) ** 2 - math.log(noise))
        kl = 0.5 * num_params * (math.log(1.0) - 2 * math.log(scale))
        return kappa * expected - kl

    border = num_params / num_data
    assert objective(border, 1e-6) == pytest.approx(objective(border, 1e-2))
    assert objective(2 * border, 1e-6) > objective(2 * border, 1e-2) + 100


def test_noise_is_learned_beside_the_weights():
    x = torch.randn(400, 1)
    y = 2 * x + 0.2 * torch.randn(400, 1)
    net, likelihood = torch.nn.Linear(1, 1), Gaussian()
    posterior = deelbo.IsotropicPosterior(net, init_scale=1e-3)
    prior = deelbo.priors.GaussianPrior({"all": deelbo.priors.PriorGroup(net.parameters())})
    objective = deelbo.DataEmphasizedELBO(posterior, prior, num_data=400)
    optimizer = torch.optim.Adam([*posterior.parameters(), *likelihood.parameters()], lr=0.05)
    for _ in range(300):
        optimizer.zero_grad()
        with posterior.sample():
            likelihood(net(x), y).backward()
        objective.backward()
        optimizer.step()
    assert likelihood.noise.item() == pytest.approx(0.2, rel=0.1)
    assert net.weight.item() == pytest.approx(2, rel=0.05)


def test_predictions_as_rows():
    likelihood = Gaussian(noise=0.5)
    likelihood.fit(torch.tensor([[10.0, 1.0], [30.0, 3.0]]), 2)
    prediction = likelihood.prediction(likelihood.averageable(torch.zeros(1, 2)))
    row = likelihood.describe(prediction, ["height", "width"])[0]
    assert row.columns == {"predicted_height": 20.0, "std_height": 5.0, "predicted_width": 2.0, "std_width": 0.5}


def test_a_likelihood_takes_values_of_any_number():
    likelihood = Gaussian()
    state = {name: value.tolist() for name, value in likelihood.state_dict().items()}
    wider = {name: [value, value] if isinstance(value, float) else value * 2 for name, value in state.items()}
    likelihood.restore(wider)
    assert {name: value.tolist() for name, value in likelihood.state_dict().items()} == wider
