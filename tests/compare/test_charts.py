"""Charts of a comparison: what is drawn where."""

import numpy as np
import pytest

from deelbo.compare import charts
from deelbo.compare.charts import MethodCurves
from deelbo.compare.strategies import Curve
from deelbo.metrics import metrics_of


@pytest.fixture
def axes_of(monkeypatch):
    """Let charts return their axes, with the titles, instead of a text."""
    monkeypatch.setattr(charts, "finish", lambda figure, axes, x, y, above: (axes, x, y))


def drawn(axes):
    return [(line.get_label(), np.asarray(line.get_xydata()).tolist()) for line in axes.get_lines()]


def test_time_in_per_cent_with_one_entry_in_the_legend(axes_of):
    search = Curve([(10, 0.5, 0.4, 0.6), (20, 0.7, 0.6, 0.8)], [(25, 0.75)])
    methods = [
        MethodCurves("map-grid", 1, [(0, search), (1, search)]),
        MethodCurves("de-elbo", 0, [(0, Curve([(3, 0.9, 0.9, 0.9)], [(3, 0.9)]))]),
    ]
    axes, x, y = charts.time_chart(methods, metrics_of("categorical")["accuracy"])
    lines = drawn(axes)
    np.testing.assert_allclose(lines[0][1], [[10, 50], [20, 70]])
    np.testing.assert_allclose(lines[1][1], [[25, 75]])
    np.testing.assert_allclose(lines[-1][1], [[3, 90]])
    assert [label for label, _ in lines if not label.startswith("_")] == ["map-grid", "de-elbo"]
    markers = [line.get_marker() for line in axes.get_lines()]
    assert markers[1] != markers[3]  # one for each training set
    assert (x, y, axes.get_xscale()) == ("time", "test accuracy, %", "log")


def test_errors_are_in_their_own_units(axes_of):
    curve = Curve([], [(100.0, 2.5), (200.0, 3.5)])
    axes, _, y = charts.time_chart([MethodCurves("elbo", 9, [(7, curve)])], metrics_of("gaussian")["rmse"])
    assert drawn(axes) == [("elbo", [[100.0, 2.5], [200.0, 3.5]])]
    assert y == "test root mean squared error"


@pytest.mark.parametrize(
    ("times", "labels"),
    [
        ((2, 40), ["2 s", "3 s", "5 s", "10 s", "20 s", "30 s"]),
        ((70, 5000), ["1 min", "3 min", "10 min", "30 min", "1 h"]),
    ],
)
def test_times_as_people_say_them(axes_of, times, labels):
    curve = Curve([], [(time, 0.5) for time in times])
    axes, *_ = charts.time_chart([MethodCurves("a", 0, [(0, curve)])], metrics_of("categorical")["accuracy"])
    shown = [label.get_text() for label in axes.get_xticklabels()]
    assert len(shown) <= 7
    assert shown == labels


def test_very_short_times_have_ticks_as_well(axes_of):
    curve = Curve([], [(0.2, 0.5), (0.3, 0.5)])
    axes, *_ = charts.time_chart([MethodCurves("a", 0, [(0, curve)])], metrics_of("categorical")["accuracy"])
    assert len(axes.get_xticks()) == 2


def row(size, kappa, accuracy, default=False, ratio=None):
    known = {"train_size": size, "kappa": kappa, "accuracy": accuracy}
    return {**known, "default_kappa": default, "data_ratio": ratio}


def test_kappa_has_means_standard_deviations_and_a_ring(axes_of):
    rows = [row(10, 100.0, 0.8, True), row(10, 1.0, 0.5), row(10, 1.0, 0.7), row(50, 1.0, 0.9), row(50, 5.0, None)]
    axes, _, y = charts.kappa_chart(rows, metrics_of("categorical")["accuracy"])
    lines = drawn(axes)
    assert [label for label, _ in lines if not label.startswith("_")] == ["N = 10", "N = 50"]
    np.testing.assert_allclose(lines[0][1], [[1, 60], [100, 80]])
    np.testing.assert_allclose(lines[1][1], [[100, 80]])  # the ring
    np.testing.assert_allclose(lines[2][1], [[1, 90]])
    assert y == "test accuracy, %"
    band = axes.collections[0].get_paths()[0].vertices
    at_one = band[band[:, 0] == 1.0, 1]
    deviation = np.std([50, 70], ddof=1)
    np.testing.assert_allclose([at_one.min(), at_one.max()], [60 - deviation, 60 + deviation])


def test_a_sweep_alone_has_its_ring_between_the_runs(axes_of):
    rows = [row(10, kappa, accuracy, ratio=10.0) for kappa, accuracy in ((1.0, 0.2), (100.0, 0.8))]
    axes, *_ = charts.kappa_chart(rows, metrics_of("categorical")["accuracy"])
    np.testing.assert_allclose(drawn(axes)[1][1], [[10, 50]])  # half-way on a logarithmic scale
    outside = [{**line, "data_ratio": 1000.0} for line in rows]
    axes, *_ = charts.kappa_chart(outside, metrics_of("categorical")["accuracy"])
    assert len(drawn(axes)) == 1


def test_it_is_said_which_networks_a_line_is_about():
    line = [(1, 0.5, 0.5, 0.5), (2, 0.6, 0.6, 0.6)]
    kinds = {"map-grid": False, "map-bo": True, "de-elbo": None}
    methods = [MethodCurves(name, 0, [(0, Curve(line, [(2, 0.6)], kind))]) for name, kind in kinds.items()]
    again, part = charts.about_lines(methods).split(". Lines of ")
    assert again.startswith("Lines of map-bo: networks trained again on all examples")
    assert part.startswith("map-grid: networks trained on four fifths, without the time of training again")
    assert "de-elbo" not in again + part
    assert charts.about_lines(methods[2:]) == ""


def test_a_chart_is_a_picture():
    svg = charts.time_chart(
        [MethodCurves("elbo", 0, [(0, Curve([], [(1.0, 0.5)]))])], metrics_of("categorical")["accuracy"]
    )
    assert svg.startswith("<svg")
    assert "elbo" in svg
