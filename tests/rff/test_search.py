import numpy as np
import pytest
import torch

from deelbo.rff import RFFRegressor
from deelbo.rff.problem import Problem, split
from deelbo.rff.search import _neighbourhood, labelled_lengthscales
from shared.regression import toy


def fit(objective, number=20, **settings):
    x, y = toy(number)
    settings = {"normalize_y": False, "random_state": 0, **settings}
    return RFFRegressor(settings.pop("num_features", 1024), objective=objective, **settings).fit(x, y)


def test_isotropic_fits_do_not_memorise():
    """The objective is higher at lengthscales below any distance between rows; the fit is not there."""
    model = fit("de-elbo")
    x, y = (torch.from_numpy(part) for part in toy())
    problem = Problem(x - x.mean(0), y[:, None], model._A, model._b, "de-elbo", 51.2)

    def at(lengthscale, outputscale, noise):
        logs = torch.tensor([lengthscale, outputscale, noise], dtype=torch.float64).log()
        return problem.value(problem.statistics(logs), split(logs)[2]).item()

    assert at(0.002, 0.122, 0.036) > model.objective_ > 570
    assert model.objective_ == pytest.approx(at(model.lengthscale_, model.outputscale_, model.noise_), rel=1e-9)
    assert 0.15 < model.lengthscale_ < 0.4
    for factor in (0.97, 1.03):  # at its bound, or at a maximum
        if factor < 1 and model.lengthscale_ < 0.25:
            continue
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
    assert _neighbourhood(x, torch.Generator().manual_seed(0)) == 3.0  # of 3, 3, 2, 3, 7
    assert _neighbourhood(torch.zeros(3, 2), torch.Generator()) == 0.0
    many = torch.randn(300, 2, generator=torch.Generator().manual_seed(0)) + 2000  # where squares lose their digits
    distances = torch.cdist(many.double() - 2000, many.double() - 2000).sort().values
    found = _neighbourhood(many, torch.Generator().manual_seed(0))
    assert found == pytest.approx(float(distances[:, 3].median()), rel=0.1)


@pytest.mark.parametrize("objective", ["lml", "de-elbo"])
def test_fits_do_not_depend_on_units_or_origin(objective):
    random = np.random.default_rng(0)
    z = random.standard_normal((150, 2))
    y = np.sin(3 * z[:, 0]) + np.cos(2 * z[:, 1]) + 0.1 * random.standard_normal(150)
    fits = [
        RFFRegressor(128, objective=objective, ard=ard, random_state=0).fit(z * scale + shift, y)
        for ard, scale, shift in (
            (False, 1.0, 0.0), (False, 1e-9, 0.0), (False, 1e3, 1e5), (True, 1.0, 0.0), (True, [1.0, 1e5], [0, 1e7]),
        )
    ]  # fmt: skip
    for first, *others in (fits[:3], fits[3:]):
        for other in others:
            assert other.objective_ == pytest.approx(first.objective_, rel=1e-3, abs=0.05)
            assert other.noise_ == pytest.approx(first.noise_, rel=0.01)
    assert fits[1].lengthscale_ == pytest.approx(fits[0].lengthscale_ * 1e-9, rel=0.01)
    assert fits[4].lengthscale_ == pytest.approx(fits[3].lengthscale_ * [1, 1e5], rel=0.02)


def test_one_far_row_does_not_hide_the_others():
    random = np.random.default_rng(0)
    x = np.concatenate([random.standard_normal((80, 2)), [[3000, 3000]]])
    model = RFFRegressor(256, random_state=0).fit(x, np.sin(2 * x[:, 0]))
    assert model.score(x[:80], np.sin(2 * x[:80, 0])) > 0.95


def test_isotropic_ard_finds_the_input_that_matters():
    random = np.random.default_rng(0)
    x = random.standard_normal((300, 4))
    model = RFFRegressor(512, objective="de-elbo", ard=True, random_state=0).fit(x, np.sin(3 * x[:, 0]))
    assert model.lengthscale_[0] * 2 < model.lengthscale_[1:].min()


def test_a_target_stacked_with_itself_is_fitted_alike():
    x, y = toy(60)
    one, three = (RFFRegressor(256, objective="de-elbo", random_state=0).fit(x, t) for t in (y, np.stack([y] * 3, 1)))
    assert three.noise_ == pytest.approx(np.full(3, one.noise_), rel=1e-3)
    np.testing.assert_allclose(three.predict(x)[:, 1], one.predict(x), atol=1e-3)


def test_targets_far_from_zero_without_normalisation():
    x, y = toy(150)
    model = RFFRegressor(256, normalize_y=False, random_state=0).fit(x, y + 300)
    assert model.score(x, y + 300) > 0.95


@pytest.mark.parametrize("periods", [5, 30, 100])
def test_short_lengthscales_are_found(periods):
    x = np.random.default_rng(0).uniform(size=(600, 1))
    wave = np.sin(2 * np.pi * periods * x[:, 0])
    noise = 0.05 * np.random.default_rng(1).standard_normal(500)
    model = RFFRegressor(256, random_state=0).fit(x[:500], wave[:500] + noise)
    assert model.score(x[500:], wave[500:]) > 0.95


def test_labels_have_the_lengthscale_of_their_marginal_likelihood():
    x = torch.linspace(-2, 2, 200, dtype=torch.float64)[:, None]
    labels = (torch.sin(4 * x[:, 0]) > 0).long()
    random = torch.Generator().manual_seed(0)
    A, b = torch.randn(1, 512, generator=random).double(), 6.28 * torch.rand(512, generator=random).double()
    found = float(labelled_lengthscales(x, labels, A, b, ard=False, seed=0))
    targets = torch.nn.functional.one_hot(labels).double()
    targets = targets - targets.mean(0)
    problem = Problem(x, targets, A, b, "lml", 1.0)

    def best(log):
        """The highest marginal likelihood at a lengthscale, over a fine grid of the others."""
        grid = torch.linspace(-4, 2, 9).double()
        points = [torch.stack([torch.tensor(log).double(), o, n]) for o in grid for n in grid]
        return max(float(problem.value(problem.statistics(p), split(p)[2])) for p in points)

    values = {shift: best(found + shift) for shift in (-0.7, 0.0, 0.7)}
    assert values[0.0] > max(values[-0.7], values[0.7])
