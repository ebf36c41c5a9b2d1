"""The paper's own numbers, for tables that show them beside ours; one CSV file for each table of the appendix."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "paper_tables"


@dataclass(frozen=True)
class PublishedCell:
    """A cell of a table of the paper: mean, smallest and largest of three training sets.

    Accuracies and calibration errors are in per cent, as in the paper.

    Args:
        network: Name of the network in the paper.
        prior: Name of the prior in the paper.
        method: Name of the method in deelbo.
        dataset: Name of the dataset in deelbo.
        size: N, the size of the training set.
        mean: Mean over the training sets.
        low: Smallest value.
        high: Largest value.
    """

    network: str
    prior: str
    method: str
    dataset: str
    size: int
    mean: float
    low: float
    high: float


def published(name: str) -> list[PublishedCell]:
    """Return the cells of a table of the paper.

    Args:
        name: Name of the entry, such as "tab-image-acc".

    Example:
        >>> from deelbo.reproduce.published import published
        >>> cell = published("tab-image-acc")[0]
        >>> cell.network, cell.prior, cell.method, cell.size, cell.mean
        ('ResNet-50', 'L2-zero', 'map-grid', 100, 67.7)
    """
    with (FOLDER / f"{name}.csv").open(newline="") as file:
        return [
            PublishedCell(
                row["network"],
                row["prior"],
                row["method"],
                row["dataset"],
                size=int(row["size"]),
                mean=float(row["mean"]),
                low=float(row["low"]),
                high=float(row["high"]),
            )
            for row in csv.DictReader(file)
        ]


# Tab. 2: minutes of an average run and hours of the whole search; ResNet-50 on CIFAR-10 with N = 50,000.
TIMING = {
    ("L2-SP", "map-grid"): (37.0, 88.5),
    ("L2-SP", "la-lml"): (70.0, 4.7),
    ("L2-SP", "de-elbo"): (33.0, 2.2),
    ("PTYL", "map-grid"): (37.0, 148.7),
    ("PTYL", "de-elbo"): (36.0, 2.4),
}
# Fig. 1: test accuracy in per cent of the two networks that Fig. 1a compares.
FIGURE_1 = {"elbo": 28.6, "de-elbo": 87.3}
