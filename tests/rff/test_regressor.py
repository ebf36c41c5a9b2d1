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
from deelbo.rff.problem import Problem
from shared.regression import toy


@pytest.mark.slow
@parametrize_with_checks([RFFRegressor(num_features=64, max_iter=15)])
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


@pytest.mark.parametrize(("number", "objective"), [(20, "lml"), (300, "lml"), (20, "de-elbo")])
def test_draws_are_functions_with_noise(number, objective):
    """Moments over many draws are those of `predict`, and neighbours are drawn together."""
    x, y = toy(number)
    model = RFFRegressor(64, objective=objective, random_state=0, normalize_y=False).fit(x, y)  # dual, primal
    new = np.array([[0.0], [0.01], [4.0]])
    mean, std = model.predict(new, return_std=True)
    draws = model.sample_y(new, 20_000, random_state=0)
    assert draws.shape == (3, 20_000)
    np.testing.assert_allclose(draws.mean(1), mean, atol=5 * std.max() / 20_000**0.5)
    np.testing.assert_allclose(draws.std(1), std, rtol=0.03)
    function = std**2 - model.noise_**2
    together = np.cov(draws)[0, 1]
    assert together == pytest.approx(np.sqrt(function[0] * function[1]), rel=0.1, abs=3e-4)
    np.testing.assert_array_equal(draws, model.sample_y(new, 20_000, random_state=0))
    assert RFFRegressor(16, random_state=0).fit(x, np.stack([y, -y], 1)).sample_y(new, 5).shape == (3, 2, 5)


def test_approaches_gpytorch_as_features_grow():
    """At the same hyperparameters: marginal likelihood, mean and standard deviation of GPyTorch's exact process."""
    gpytorch = pytest.importorskip("gpytorch")
    x, y = toy()
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()

    class Exact(gpytorch.models.ExactGP):
        def __init__(self):
            super().__init__(torch.from_numpy(x), torch.from_numpy(y), likelihood)
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    process = Exact().double()
    process.covar_module.base_kernel.lengthscale, process.covar_module.outputscale, likelihood.noise = 0.57, 1.0, 0.01
    value = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, process)(
        process(torch.from_numpy(x)), torch.from_numpy(y)
    )
    process.eval(), likelihood.eval()
    grid = np.linspace(-3, 3, 50)[:, None]
    with torch.no_grad(), gpytorch.settings.fast_computations(False, False, False):
        predicted = likelihood(process(torch.from_numpy(grid)))
    logs = torch.tensor([0.57, 1.0, 0.1], dtype=torch.float64).log()
    errors = []
    for number in (500, 50_000):
        trials = []
        for seed in range(3):
            model = RFFRegressor(number, normalize_y=False, max_iter=1, random_state=seed)
            A, b, _ = model._draw_features(1)
            problem = Problem(torch.from_numpy(x), torch.from_numpy(y)[:, None], A, b, "lml", 1.0)
            model._logs, model._one_output, model.n_features_in_ = logs, True, 1
            model._A, model._b, model._center, model._unit = A, b, np.zeros(1), 1.0
            model._shift, model._spread = torch.zeros(1).double(), torch.ones(1).double()
            model._keep_posterior(problem)
            mean, std = model.predict(grid, return_std=True)
            found = problem.value(problem.statistics(logs), logs[2].exp()).item()
            trials.append(
                [
                    abs(found - value.item() * len(x)) / 20,
                    np.abs(mean - predicted.mean.numpy()).max(),
                    np.abs(std - predicted.stddev.numpy()).max(),
                ]
            )
        errors.append(np.mean(trials, 0))
    assert (errors[1] < [0.02, 0.05, 0.05]).all()
    assert (errors[1] < errors[0] / 3).all()  # a tenth, were it not for luck


def test_single_precision_agrees():
    x, y = toy(500)
    double, single = (RFFRegressor(64, random_state=0, dtype=dtype).fit(x, y) for dtype in ("float64", "float32"))
    assert single.objective_ == pytest.approx(double.objective_, abs=0.1)
    assert single.lengthscale_ == pytest.approx(double.lengthscale_, rel=0.02)
    np.testing.assert_allclose(single.predict(x), double.predict(x), atol=0.01)


def test_noise_has_a_floor():
    x = np.linspace(0, 1, 12)[:, None]
    with pytest.warns(ConvergenceWarning, match="noise is at its lower bound"):
        model = RFFRegressor(512, random_state=0).fit(x, np.sin(3 * x[:, 0]))
    assert model.noise_ == pytest.approx(1e-3 * np.sin(3 * x).std(), rel=1e-6)


def test_bad_input():
    x, y = toy()
    wrong = {"objective": "elbow", "num_features": 0, "solver": "sgd", "dtype": "int8", "max_iter": 2.5, "kappa": -1.0}
    wrong |= {"steps": 0, "device": "gpu"}
    for name, value in wrong.items():
        with pytest.raises(ValueError, match=f"{name}="):
            RFFRegressor(**{name: value}).fit(x, y)
    with pytest.raises(ValueError, match="isotropic objectives"):
        RFFRegressor(solver="adam").fit(x, y)
    with pytest.raises(MemoryError, match=r"num_features=10,000,000,000 needs about .* GiB"):
        RFFRegressor(10**10).fit(x, y)
    with pytest.raises(ValueError, match="infinity"):
        RFFRegressor().fit(np.where(x > 0, x, np.inf), y)
    with pytest.raises(ValueError, match="NaN"):
        RFFRegressor().fit(x, np.where(y > 0, y, np.nan))
    with pytest.raises(ValueError, match="minimum of 2"):
        RFFRegressor().fit(x[:1], y[:1])
    with pytest.raises(NotFittedError):
        RFFRegressor().predict(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for value in (7.0, 0.1):  # whose mean is exact, and not
            constant = RFFRegressor(32).fit(x, np.full(20, value))
            np.testing.assert_allclose(constant.predict(x), value)
    with pytest.raises(ValueError, match="too large"):
        RFFRegressor(8).fit(x * 1e200, y)
    with pytest.raises(ValueError, match="too large"):
        RFFRegressor(8, dtype="float32").fit(x, y).predict([[1e60]])
    with pytest.raises(ValueError, match='belongs to objective="de-elbo"'):
        RFFRegressor(kappa=2.0).fit(x, y)


@pytest.mark.parametrize("objective", ["lml", "de-elbo"])
@pytest.mark.parametrize("number", [15, 80])
def test_covariance_and_the_function_alone(objective, number):
    x, y = toy(number)
    model = RFFRegressor(40, objective=objective, random_state=0).fit(x, np.stack([y, 3 * y], 1))
    new = np.linspace(-3, 3, 9)[:, None]
    _, cov = model.predict(new, return_cov=True)
    _, std = model.predict(new, return_std=True)
    np.testing.assert_allclose(np.sqrt(np.einsum("mmt->mt", cov)), std, rtol=1e-6)
    draws = model.sample_y(new, 4000, noise=False)
    _, latent = model.predict(new, return_cov=True, noise=False)
    np.testing.assert_allclose(cov - latent, np.eye(9)[:, :, None] * model.noise_**2, atol=1e-9)
    for output in range(2):
        scale = np.abs(latent[:, :, output]).max()
        np.testing.assert_allclose(np.cov(draws[:, output]) / scale, latent[:, :, output] / scale, atol=0.1)
    with pytest.raises(ValueError, match="choose one"):
        model.predict(new, return_std=True, return_cov=True)


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_targets_of_any_size(size):
    x, y = toy(60)
    plain, other = (RFFRegressor(64, random_state=0).fit(x, targets) for targets in (y, y * size))
    for a, b in zip(plain.predict(x, return_std=True), other.predict(x, return_std=True), strict=True):
        np.testing.assert_allclose(b / size, a, rtol=1e-6)
    with pytest.raises(ValueError, match="too large; try normalize_y"):
        RFFRegressor(64, normalize_y=False).fit(x, y * 1e200)


def test_warnings_say_what_is_wrong():
    x, y = toy(60)
    with pytest.warns(ConvergenceWarning, match="stopped after max_iter"):
        RFFRegressor(64, max_iter=1, random_state=0).fit(x, y)
    with pytest.warns(ConvergenceWarning, match="upper bound: the targets look like a trend"):
        RFFRegressor(64, random_state=0).fit(x, x[:, 0] ** 2)
    z = np.random.default_rng(0).standard_normal((60, 3))
    with pytest.warns(ConvergenceWarning, match="prefers to memorise"):
        RFFRegressor(512, objective="elbo", ard=True, random_state=0).fit(z, np.sin(3 * z[:, 0]))
