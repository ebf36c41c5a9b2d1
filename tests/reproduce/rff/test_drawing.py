"""Drawings of the paper's figures: what is where."""

import numpy as np
import pytest

from deelbo.reproduce.rff import drawing
from deelbo.reproduce.rff.demos import GRID, Fit


@pytest.fixture
def fits():
    first = Fit("first", GRID * 0 + 1, GRID * 0 + 0.5, {"lengthscale": 0.123, "noise": 2.0, "scale": None})
    return [first, Fit("second", np.sin(GRID), GRID * 0 + 0.1)]


DATA = np.array([[-1.0], [0.0], [2.0]]), np.array([1.0, -1.0, 0.5])
MOONS = np.array([[0.0, 0.0], [1.0, 2.0], [0.5, 1.0]]), np.array([0, 1, 1])


def test_the_plane_covers_the_data_with_a_margin():
    points = drawing.plane(MOONS[0])
    assert points.shape == (drawing.SIDE**2, 2)
    np.testing.assert_allclose(points.min(0), [-drawing.MARGIN, -drawing.MARGIN])
    np.testing.assert_allclose(points.max(0), [1 + drawing.MARGIN, 2 + drawing.MARGIN])
    np.testing.assert_allclose(np.diff(points[:3, 0]), (1 + 2 * drawing.MARGIN) / (drawing.SIDE - 1))
    assert (np.diff(points[: drawing.SIDE, 1]) == 0).all()  # rows are along the first input


def test_a_row_of_fits(fits):
    figure = drawing.row(fits, DATA)
    first, second = figure.axes
    assert (first.get_title(), second.get_title()) == ("first", "second")
    lines = {line.get_label(): line.get_ydata() for line in first.get_lines()}
    np.testing.assert_array_equal(lines["mean"], fits[0].mean)
    np.testing.assert_allclose(lines["sin 3x"], np.sin(3 * GRID))
    band, dots = first.collections
    assert band.get_datalim(first.transData).intervaly.tolist() == [0.0, 2.0]  # two standard deviations around 1
    np.testing.assert_array_equal(dots.get_offsets(), np.column_stack([DATA[0][:, 0], DATA[1]]))
    (learned,) = (text.get_text() for text in first.texts)
    assert "ℓ 0.12" in learned
    assert "sigma_y" in learned
    assert "sigma_q" not in learned  # what a method has not
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "two standard deviations",
        "mean",
        "sin 3x",
        "training rows",
    ]


def test_fits_above_maps(fits):
    maps = [np.linspace(0, 1, drawing.SIDE**2).reshape(drawing.SIDE, -1), np.full((drawing.SIDE, drawing.SIDE), 0.9)]
    figure = drawing.demos(fits, DATA, maps, MOONS)
    left, right = figure.axes[2:4]
    assert left.images[0].get_extent() == [-1.5, 2.5, -1.5, 3.5]
    np.testing.assert_array_equal(right.images[0].get_array(), maps[1])
    assert len(left.collections) == len(right.collections) + 1  # a border where there is one
    zeros, ones = right.collections
    assert (len(zeros.get_offsets()), len(ones.get_offsets())) == (1, 2)
    assert figure.axes[-1].get_ylabel() == "p(second class)"
