import numpy as np
import pytest

from deelbo.reproduce.demos import GRID, Fit, errors


def test_errors_near_and_far():
    x = np.array([[-1.0], [1.0]])
    shifted = np.where(np.abs(GRID) <= 1, 0.5, np.where(np.abs(GRID) > 2, 2.0, 9.0))
    found = errors(Fit("", shifted, GRID * 0), Fit("", GRID * 0, GRID * 0), x)
    assert found == pytest.approx({"mean_near": 0.5, "std_near": 0.0, "mean_far": 2.0, "std_far": 0.0})
