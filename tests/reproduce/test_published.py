"""The paper's numbers."""

import pytest

from deelbo.reproduce.published import published
from deelbo.reproduce.scales import METHODS, PAPER

CELLS = {
    "tab-image-acc": 15 * 8,
    "tab-image-nll": 15 * 8,
    "tab-image-ece": 6 * 4,
    "tab-text-acc": 12,
    "tab-text-nll": 12,
}


@pytest.mark.parametrize("name", CELLS)
def test_tables_are_whole_and_plausible(name):
    cells = published(name)
    assert len(cells) == CELLS[name]
    assert len({(c.network, c.prior, c.method, c.dataset, c.size) for c in cells}) == len(cells)
    for cell in cells:
        assert cell.low <= cell.mean <= cell.high
        assert cell.size in PAPER.sizes[cell.dataset]
        assert cell.method in METHODS[cell.network, cell.prior]
        assert (cell.mean > 15 or cell.method != "map-grid") if name.endswith("acc") else cell.mean < 60


def test_some_cells():
    accuracy = {(c.network, c.prior, c.method, c.dataset, c.size): c.mean for c in published("tab-image-acc")}
    assert accuracy["ConvNeXt-Tiny", "L2-SP", "de-elbo", "cifar10", 50_000] == 97.8
    assert accuracy["ResNet-50", "L2-SP", "la-lml", "flowers102", 510] == 22.9
    assert accuracy["ResNet-50", "PTYL (SSL)", "map-grid", "pets", 370] == 58.3
