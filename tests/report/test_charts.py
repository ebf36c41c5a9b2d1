"""Charts of the report: what is drawn where, and that they follow the page's colours."""

import re

import numpy as np
import pytest

from deelbo.report import charts

ROWS = [
    {"learning_rate": 0.1, "step": 3, "nll": 2.0, "data_loss": 2.0, "kl": 0.5, "scale": 1e-4, "variance_head": 0.1},
    {"learning_rate": 0.1, "step": 6, "nll": 1.0, "data_loss": 1.0, "kl": 0.75, "scale": 2e-3, "variance_head": 0.2},
]


@pytest.fixture
def axes_of(monkeypatch):
    """Let charts return their axes, with the titles, instead of a text."""
    monkeypatch.setattr(charts, "finish", lambda figure, axes, x, y, above=0: (axes, x, y))


def lines(axes):
    return {line.get_label(): np.asarray(line.get_xydata()).tolist() for line in axes.get_lines()}


def test_the_loss_and_its_terms(axes_of):
    axes, x, y = charts.objective_chart(ROWS, "kl", "KL / N")
    assert lines(axes) == {
        "loss": [[3, 2.5], [6, 1.75]],
        "training NLL": [[3, 2.0], [6, 1.0]],
        "KL / N": [[3, 0.5], [6, 0.75]],
    }
    assert (x, y) == ("step", "nats per example")


def test_learned_values(axes_of):
    axes, *_ = charts.learned_chart(ROWS, {"scale": "σ", "variance_head": "τ"})
    assert lines(axes) == {"σ": [[3, 1e-4], [6, 2e-3]], "τ": [[3, 0.1], [6, 0.2]]}
    assert axes.get_yscale() == "log"
    many = {f"variance_{i}": str(i) for i in range(20)}
    axes, *_ = charts.learned_chart([{"step": 1, **dict.fromkeys(many, 1.0)}], many)
    assert len(axes.get_lines()) == len(charts.SERIES)  # as many as there are colours


def test_every_candidate_as_far_as_it_ran(axes_of):
    other = {"learning_rate": 1.0, "step": 3, "data_loss": 4.0, "kl": 1.0}
    axes, *_ = charts.race_chart([*ROWS, other], 0.1, "kl")
    widths = {line.get_label(): line.get_linewidth() for line in axes.get_lines()}
    assert lines(axes)["0.1"] == [[3, 2.5], [6, 1.75]]
    assert lines(axes)["1"] == [[3, 5.0]]
    assert widths["0.1"] > widths["1"]  # the best
    assert axes.get_yscale() == "log"
    axes, *_ = charts.race_chart([*ROWS, {**other, "data_loss": -3.0}], 0.1, "kl")
    assert axes.get_yscale() == "linear"  # a density may be larger than one


def test_reliability(axes_of):
    empty = {"examples": 0, "confidence": 0.0, "accuracy": 0.0}
    bins = [
        empty,
        {"examples": 1, "confidence": 0.3, "accuracy": 0.5},
        {"examples": 3, "confidence": 0.9, "accuracy": 1},
    ]
    axes, x, y = charts.reliability_chart(bins, "p", "share")
    dots = axes.collections[-1]
    assert dots.get_offsets().tolist() == [[0.3, 0.5], [0.9, 1.0]]
    assert dots.get_sizes().tolist() == [12 + 75, 12 + 225]
    assert (x, y) == ("p", "share")


def test_predictions_and_residuals(axes_of):
    points = {"target": [1.0, 2.0], "mean": [1.5, 4.0], "std": [1.0, 2.0]}
    axes, x, y = charts.scatter_chart(points, "age")
    assert lines(axes)["exact"] == [[1.0, 1.0], [4.0, 4.0]]
    bars, dots = axes.collections
    np.testing.assert_allclose(bars.get_segments()[1][:, 1], [4 - 3.29, 4 + 3.29])  # 90 % of a Gaussian
    assert dots.get_offsets().tolist() == [[1.0, 1.5], [2.0, 4.0]]
    assert (x, y) == ("true age", "predicted age")
    axes, *_ = charts.residual_chart(points, "age")
    assert axes.collections[0].get_offsets().tolist() == [[1.5, -0.5], [4.0, -2.0]]


def test_coverage(axes_of):
    axes, *_ = charts.coverage_chart([{"level": 0.5, "share": 0.4}, {"level": 0.9, "share": 0.8}])
    assert lines(axes)["this model"] == [[0.5, 0.4], [0.9, 0.8]]


def test_a_chart_has_the_colours_of_the_page_and_no_size_of_its_own():
    svg = charts.objective_chart(ROWS, "kl", "KL / N")
    assert svg.startswith("<svg")
    assert "nats per example" in svg  # text stays text
    assert not re.search(r'<svg[^>]* (width|height)="', svg)
    assert "<metadata>" not in svg
    for variable in ("--ink", "--faint", "--a", "--b", "--c"):
        assert f"var({variable})" in svg
    assert not any(colour in svg for colour in (charts.INK, charts.FAINT, *charts.SERIES))
    assert charts.objective_chart(ROWS, "kl", "KL / N") == svg  # the same bytes every time
