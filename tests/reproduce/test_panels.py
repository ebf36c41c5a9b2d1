"""Figures of several panels."""

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from deelbo.reproduce.panels import markdown_table, panel_figure
from deelbo.reproduce.scales import TITLES


def test_one_legend_for_all_panels():
    def draw(axes, label):
        axes.plot([1, 2], [3, 4], label=label)
        axes.plot([1, 2], [5, 6], label="both")

    panels = [(f"panel {i}", lambda axes, i=i: draw(axes, f"line {i % 2}")) for i in range(5)]
    figure = panel_figure(panels, "time", "accuracy", columns=3)
    assert [axis.get_title() for axis in figure.axes if axis.get_visible()] == [f"panel {i}" for i in range(5)]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["line 0", "both", "line 1"]
    assert [axis.get_ylabel() for axis in figure.axes[:4]] == ["accuracy", "", "", "accuracy"]
    assert not figure.axes[5].get_visible()


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_the_legend_of_all_methods_fits_into_the_figure(number):
    def draw(axes):
        for title in TITLES.values():
            axes.plot([1, 2], [3, 4], label=title)

    figure = panel_figure([("panel", draw)] * number, "time", "accuracy")
    FigureCanvasAgg(figure).draw()
    legend = figure.legends[0].get_window_extent()
    assert figure.bbox.x0 <= legend.x0 < legend.x1 <= figure.bbox.x1


def test_markdown():
    assert markdown_table(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"
