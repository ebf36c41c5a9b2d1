from types import SimpleNamespace

import numpy as np
import pytest

from deelbo.reproduce.rff.demos import GRID, Fit, errors, held_out, moons, regression, rff_fit


def test_errors_near_and_far():
    x = np.array([[-1.0], [1.0]])
    shifted = np.where(np.abs(GRID) <= 1, 0.5, np.where(np.abs(GRID) > 2, 2.0, 9.0))
    found = errors(Fit("", shifted, GRID * 0), Fit("", GRID * 0, GRID * 0), x)
    assert found == pytest.approx({"mean_near": 0.5, "std_near": 0.0, "mean_far": 2.0, "std_far": 0.0})


def test_the_papers_data():
    x, y = regression()
    assert (x.shape, y.shape) == ((20, 1), (20,))
    noise = y - np.sin(3 * x[:, 0])
    assert 0.05 < noise.std() < 0.15
    np.testing.assert_array_equal(regression()[1], y)
    inputs, labels = moons()
    assert inputs.shape == (20, 2)
    assert sorted(labels) == [0] * 10 + [1] * 10


def test_a_fifth_is_held_out():
    train, rest = held_out(25, seed=3)
    assert (len(train), len(rest)) == (20, 5)
    assert sorted([*train, *rest]) == list(range(25))
    assert list(held_out(25, seed=4)[1]) != list(rest)


def test_the_panel_of_a_model():
    values = {"lengthscale_": 1.0, "outputscale_": 2.0, "noise_": 3.0, "scale_": 4.0, "objective_": 5.0}
    model = SimpleNamespace(predict=lambda x, return_std: (x[:, 0], 2 * x[:, 0]), **values)
    fit = rff_fit("title", model)
    np.testing.assert_array_equal(fit.std, 2 * GRID)
    assert fit.learned == {name.removesuffix("_"): value for name, value in values.items()}
