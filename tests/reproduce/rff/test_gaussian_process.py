import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from deelbo.reproduce.rff import gaussian_process
from deelbo.reproduce.rff.demos import GRID, moons, regression

pytestmark = pytest.mark.slow


def test_gaussian_process_is_that_of_scikit_learn():
    x, y = regression()
    ours = gaussian_process.regression_fit(x, y)
    kernel = ConstantKernel(1.0) * RBF(1.0) + WhiteKernel(0.1)
    other = GaussianProcessRegressor(kernel, n_restarts_optimizer=3, random_state=0).fit(x, y)
    assert ours.learned["objective"] == pytest.approx(other.log_marginal_likelihood_value_, abs=1e-3)
    mean, std = other.predict(GRID[:, None], return_std=True)
    np.testing.assert_allclose(ours.mean, mean, atol=0.01)
    np.testing.assert_allclose(ours.std, std, atol=0.01)


def test_gaussian_process_classifies():
    x, labels = moons()
    probabilities, learned = gaussian_process.classification_probabilities(x, labels, x + 0.01)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    assert (probabilities.argmax(1) == labels).all()
    assert 0.2 < learned["lengthscale"] < 5
