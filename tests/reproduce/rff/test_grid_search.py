import numpy as np
import pytest
import torch

from deelbo.reproduce.rff import gaussian_process
from deelbo.reproduce.rff.demos import GRID, NUM_FEATURES, errors, moons, regression
from deelbo.reproduce.rff.grid_search import FixedFeatures, regression_fit


@pytest.mark.slow
def test_fixed_lengthscales_are_searched_on_held_out_rows():
    from deelbo.reproduce.rff import grid_search

    x, y = regression()
    good, bad = (grid_search.regression_fit(x, y, lengthscale, 0) for lengthscale in (1.0, 20.0))
    reference = gaussian_process.regression_fit(x, y)
    assert errors(good, reference, x)["mean_near"] < 0.1 < 0.5 < errors(bad, reference, x)["mean_near"]
    assert (good.std == good.learned["noise"]).all()
    probabilities, learned = grid_search.classification_probabilities(*moons(), moons()[0], 1.0, 0)
    assert (probabilities.argmax(1) == moons()[1]).all()
    assert learned["outputscale"] in grid_search.OUTPUTSCALES


def test_features_approximate_the_kernel():
    x = np.random.default_rng(0).standard_normal((12, 2)) + 5
    phi = FixedFeatures(x, 1.5, seed=1)(x, 2.0)
    assert phi.shape == (12, NUM_FEATURES)
    distance = torch.cdist(torch.from_numpy(x), torch.from_numpy(x))
    expected = 4 * torch.exp(-0.5 * (distance / 1.5) ** 2)
    assert (phi @ phi.T - expected).abs().max() < 5 * 4 * NUM_FEATURES**-0.5


def test_the_fit_is_ridge_regression():
    x, y = regression()
    fit = regression_fit(x, y, 1.0, seed=0)
    scale, noise = fit.learned["outputscale"], fit.learned["noise"]
    phi = FixedFeatures(x, 1.0, 0)
    rows, new = phi(x, scale).numpy(), phi(GRID[:, None], scale).numpy()
    weights = np.linalg.solve(rows.T @ rows + noise**2 * np.eye(NUM_FEATURES), rows.T @ y)  # of the MAP, in weights
    np.testing.assert_allclose(fit.mean, new @ weights, atol=1e-7)
