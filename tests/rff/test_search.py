import numpy as np
import pytest
import torch

from deelbo.rff import RFFRegressor
from deelbo.rff.problem import split
from deelbo.rff.search import _neighbourhood
from rff_cases import toy


def fit(objective, number=20, **settings):
    x, y = toy(number)
    settings = {"normalize_y": False, "random_state": 0, **settings}
    return RFFRegressor(settings.pop("num_features", 1024), objective=objective, **settings).fit(x, y)


def test_isotropic_fits_do_not_memorise():
    """The objective is higher at lengthscales below any distance between rows; the fit is not there."""
    from deelbo.rff.problem import Problem

    model = fit("de-elbo")
    x, y = (torch.from_numpy(part) for part in toy())
    problem = Problem(x, y[:, None], model._A, model._b, "de-elbo", 51.2)

    def at(lengthscale, outputscale, noise):
        logs = torch.tensor([lengthscale, outputscale, noise], dtype=torch.float64).log()
        return problem.value(problem.statistics(logs), split(logs)[2]).item()

    assert at(0.002, 0.122, 0.036) > model.objective_ > 570
    assert model.objective_ == pytest.approx(at(model.lengthscale_, model.outputscale_, model.noise_), rel=1e-9)
    assert 0.15 < model.lengthscale_ < 0.4
    for factor in (0.97, 1.03):
        assert at(model.lengthscale_ * factor, model.outputscale_, model.noise_) < model.objective_


def test_the_elbo_is_not_caught_at_the_prior():
    """Long lengthscales have a flat region where outputscale and mean vanish."""
    model = fit("elbo")
    assert model.objective_ > -21
    assert model.outputscale_ > 0.2
    assert model.scale_ > 0.98  # Lemma 1


@pytest.mark.parametrize("objective", ["lml", "elbo"])
def test_starting_with_some_rows_ends_at_the_same_maximum(objective, monkeypatch):
    whole = fit(objective, 400, num_features=40)
    monkeypatch.setattr("deelbo.rff.search.FEW", 60)
    some = fit(objective, 400, num_features=40)
    assert some.objective_ == pytest.approx(whole.objective_, rel=1e-4)
    assert some.lengthscale_ == pytest.approx(whole.lengthscale_, rel=0.02)


def test_each_input_learns_its_lengthscale():
    random = np.random.default_rng(0)
    x = random.standard_normal((200, 3))
    model = RFFRegressor(256, ard=True, random_state=0).fit(x, np.sin(3 * x[:, 0]) + 0.05 * random.standard_normal(200))
    assert model.lengthscale_.shape == (3,)
    assert model.lengthscale_[0] * 5 < model.lengthscale_[1:].min()


def test_neighbourhood():
    x = torch.tensor([[0.0], [0.0], [1.0], [3.0], [7.0]])
    assert _neighbourhood(x, torch.Generator().manual_seed(0)) == 7.0  # of 7, 7, 2, 3, 7: a twin does not count
    assert _neighbourhood(torch.zeros(3, 2), torch.Generator()) == 0.0
