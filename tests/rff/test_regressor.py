import pickle
import warnings

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from deelbo.rff import RFFRegressor


def toy(number=20):
    """The paper's regression demo."""
    random = np.random.RandomState(42)
    x = random.randn(number, 1)
    return x, (np.sin(3 * x) + 0.1 * random.randn(number, 1))[:, 0]


@parametrize_with_checks([RFFRegressor(num_features=256, max_iter=30)])
def test_scikit_learn_accepts_it(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        check(estimator)


def test_approaches_the_exact_gaussian_process():
    x, y = toy()
    ours = RFFRegressor(8192, normalize_y=False, random_state=0).fit(x, y)
    kernel = ConstantKernel(1.0) * RBF(1.0) + WhiteKernel(0.1)
    exact = GaussianProcessRegressor(kernel, n_restarts_optimizer=3, random_state=0).fit(x, y)
    assert ours.objective_ == pytest.approx(exact.log_marginal_likelihood_value_, abs=0.3)
    assert ours.lengthscale_ == pytest.approx(exact.kernel_.k1.k2.length_scale, rel=0.1)
    assert ours.noise_ == pytest.approx(exact.kernel_.k2.noise_level**0.5, rel=0.1)
    grid = np.linspace(-2, 2, 60)[:, None]
    mean, std = ours.predict(grid, return_std=True)
    exact_mean, exact_std = exact.predict(grid, return_std=True)
    assert np.abs(mean - exact_mean).max() < 0.1
    assert np.abs(std - exact_std).max() < 0.1


@pytest.mark.parametrize("objective", ["lml", "de-elbo", "elbo"])
@pytest.mark.parametrize("ard", [False, True])
def test_gradient_of_both_forms(objective, ard, monkeypatch):
    """Primal in two chunked passes, dual by autograd: the same number, and the gradient of finite differences."""
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(30, size, dtype=torch.float64, generator=generator) for size in (2, 2))
    monkeypatch.setattr("deelbo.rff.regressor.CHUNK", 7)
    model = RFFRegressor(30, objective=objective, ard=ard, max_iter=1, random_state=0).fit(x.numpy(), y.numpy())
    logs = torch.tensor([0.1, -0.2, 0.3, -0.7][: 4 if ard else 3], dtype=torch.float64)

    def at(point, dual):
        model._sizes = (30, 30, 2)
        model.num_features = 31 if dual else 30  # only decides the form
        return model._value_and_gradient(point, x, y)

    model._sizes = (30, 30, 2)
    primal, by_primal = at(logs, False)
    with monkeypatch.context() as patch:
        patch.setattr(model, "num_features", 31)
        dual, by_dual = model._value_and_gradient(logs, x, y)
    assert primal == pytest.approx(dual, rel=1e-9)
    torch.testing.assert_close(by_primal, by_dual, rtol=1e-6, atol=1e-8)
    for i in range(len(logs)):
        step = torch.zeros_like(logs)
        step[i] = 1e-5
        slope = (at(logs + step, False)[0] - at(logs - step, False)[0]) / 2e-5
        assert by_primal[i].item() == pytest.approx(slope, rel=1e-4, abs=1e-5)


def test_objectives_of_the_paper():
    x, y = toy()
    fits = {
        o: RFFRegressor(objective=o, normalize_y=False, random_state=0).fit(x, y) for o in ("lml", "de-elbo", "elbo")
    }
    assert fits["elbo"].scale_ > 0.95  # Lemma 1: the posterior stays at the prior
    assert fits["de-elbo"].scale_ < 0.8  # Lemma 2
    inside = np.linspace(x.min(), x.max(), 100)[:, None]
    errors = {o: np.abs(fit.predict(inside) - np.sin(3 * inside[:, 0])).mean() for o, fit in fits.items()}
    assert errors["lml"] < errors["de-elbo"] < errors["elbo"]


def test_uncertainty_grows_away_from_the_data():
    x, y = toy()
    model = RFFRegressor(random_state=0).fit(x, y)
    _, near = model.predict([[0.0]], return_std=True)
    _, far = model.predict([[6.0]], return_std=True)
    assert far > 3 * near
    draws = model.sample_y([[0.0]], 4000)
    assert draws.std() == pytest.approx(near[0], rel=0.05)


def test_pipelines_grids_pickles_and_several_outputs():
    x, y = toy(60)
    both = np.stack([y, 3 * y + 1], 1)
    model = RFFRegressor(128, random_state=0).fit(x, both)
    mean, std = model.predict(x, return_std=True)
    assert mean.shape == std.shape == (60, 2)
    np.testing.assert_allclose(mean[:, 1], 3 * mean[:, 0] + 1, atol=1e-6)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(x), mean)
    search = GridSearchCV(RFFRegressor(random_state=0, max_iter=10), {"num_features": [16, 64]}, cv=2).fit(x, y)
    assert search.best_score_ > 0.5
    assert make_pipeline(StandardScaler(), RFFRegressor(64, random_state=0)).fit(x, y).score(x, y) > 0.9


def test_noise_has_a_floor():
    x = np.linspace(0, 1, 12)[:, None]
    with pytest.warns(ConvergenceWarning, match="noise is at its lower bound"):
        model = RFFRegressor(512, random_state=0).fit(x, np.sin(3 * x[:, 0]))
    assert model.noise_ > 0


def test_bad_input():
    x, y = toy()
    for wrong in ({"objective": "elbow"}, {"num_features": 0}):
        with pytest.raises(ValueError, match=r"objective|num_features"):
            RFFRegressor(**wrong).fit(x, y)
    with pytest.raises(ValueError, match="NaN"):
        RFFRegressor().fit(x, np.where(y > 0, y, np.nan))
    with pytest.raises(ValueError, match="minimum of 2"):
        RFFRegressor().fit(x[:1], y[:1])
    with pytest.raises(NotFittedError):
        RFFRegressor().predict(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        constant = RFFRegressor(32).fit(x, np.full(20, 7.0))
    np.testing.assert_allclose(constant.predict(x), 7.0)
