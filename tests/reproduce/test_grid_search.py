import pytest

from deelbo.reproduce import gaussian_process
from deelbo.reproduce.demos import errors, moons, regression

pytestmark = pytest.mark.slow


def test_fixed_lengthscales_are_searched_on_held_out_rows():
    from deelbo.reproduce import grid_search

    x, y = regression()
    good, bad = (grid_search.regression_fit(x, y, lengthscale, 0) for lengthscale in (1.0, 20.0))
    reference = gaussian_process.regression_fit(x, y)
    assert errors(good, reference, x)["mean_near"] < 0.1 < 0.5 < errors(bad, reference, x)["mean_near"]
    assert (good.std == good.learned["noise"]).all()
    probabilities, learned = grid_search.classification_probabilities(*moons(), moons()[0], 1.0, 0)
    assert (probabilities.argmax(1) == moons()[1]).all()
    assert learned["outputscale"] in grid_search.OUTPUTSCALES
