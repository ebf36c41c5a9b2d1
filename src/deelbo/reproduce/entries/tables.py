"""The tables of test results in the paper's layout: accuracy, NLL and ECE over datasets, priors and networks."""

from __future__ import annotations

from collections.abc import Sequence

from deelbo.compare.results import Row, summary
from deelbo.metrics import metrics_of
from deelbo.reproduce.entry import ENTRIES, Claim, Reproduction, judge
from deelbo.reproduce.panels import markdown_table
from deelbo.reproduce.published import PublishedCell, published
from deelbo.reproduce.scales import DATASETS, IMAGES, METHODS, TEXTS, TITLES
from deelbo.reproduce.setup import Setup
from deelbo.reproduce.study import EntryOfStudies, Study, make_studies

Column = tuple[str, int]  # dataset and training size


class PaperTable(EntryOfStudies):
    """A table of one metric: mean (min–max) over the training sets.

    Args:
        name: Name of the entry.
        metric: Name of the metric.
        datasets: Names of the datasets, in the order of the columns.
        rows: Network, prior and methods, in the order of the rows.
        near: How much worse than grid search counts as comparable, in the paper's units.
    """

    def __init__(
        self,
        name: str,
        metric: str,
        datasets: Sequence[str],
        rows: Sequence[tuple[str, str, tuple[str, ...]]],
        near: float,
    ) -> None:
        self.name, self.metric, self.near = name, metrics_of("categorical")[metric], near
        titles = ", ".join(DATASETS[dataset].title for dataset in datasets)
        self.title = f"{self.metric.title} on {titles}"
        self.studies = [
            Study(network, dataset, prior, methods=methods) for network, prior, methods in rows for dataset in datasets
        ]

    def make(self, setup: Setup) -> Reproduction:
        """Make all runs and fill in the table."""
        made, notes = make_studies(self.studies, setup)
        rows = [row for study, comparison in made for row in study.rows(comparison)]
        if setup.scale.name == "laptop":
            notes.append("Another network and less data than the paper's: compare the order of the methods, not values")
        table = f"{self._ours(rows)}\n\nThe paper's:\n\n{published_table(published(self.name))}"
        return Reproduction({"rows": rows}, None, table, self._claims(rows), notes)

    def _ours(self, rows: list[Row]) -> str:
        columns = sorted({(row["dataset"], row["train_size"]) for row in rows}, key=_column_order)
        lines = list(dict.fromkeys((row["network"], row["paper_prior"], row["method"]) for row in rows))

        def cell(line: tuple[str, str, str], column: Column) -> str:
            return summary([row.get(self.metric.name) for row in _at(rows, line, column)], self.metric.show_number)

        cells = [[*_names(line), *(cell(line, column) for column in columns)] for line in lines]
        return markdown_table(_head(columns), cells)

    def _claims(self, rows: list[Row]) -> list[Claim]:
        """Judge whether DE-ELBO is comparable with the first rival of its network and prior, or better."""
        factor = 100 if self.metric.percent else 1
        sign = 1 if self.metric.better == "higher" else -1
        outcomes, words = [], []
        for network, prior in dict.fromkeys((row["network"], row["paper_prior"]) for row in rows):
            rival = METHODS[network, prior][0] if self.metric.name != "ece" else "elbo"
            for column in dict.fromkeys((row["dataset"], row["train_size"]) for row in rows):
                ours, other = (
                    [
                        row[self.metric.name]
                        for row in _at(rows, (network, prior, method), column)
                        if not row["diverged"]
                    ]
                    for method in ("de-elbo", rival)
                )
                if ours and other:
                    values = [factor * sum(of) / len(of) for of in (ours, other)]
                    outcomes.append(sign * (values[0] - values[1]) >= -self.near)
                    where = f"{network}, {prior}, {DATASETS[column[0]].title}, N = {column[1]}"
                    words.append(f"{where}: {values[0]:.3g} against {values[1]:.3g}")
        if not outcomes:
            return []
        against = "the ELBO" if self.metric.name == "ece" else "grid search"
        how = "better than" if self.near == 0 else f"within {self.near:g} of, or better than,"
        text = f"{self.metric.title} of DE-ELBO is {how} that of {against}"
        return [judge(text[0].upper() + text[1:], outcomes, "; ".join(words))]


def published_table(cells: list[PublishedCell]) -> str:
    """Return the paper's own numbers in the same layout."""
    columns = sorted({(cell.dataset, cell.size) for cell in cells}, key=_column_order)
    lines: dict[tuple[str, str, str], dict[Column, PublishedCell]] = {}
    for cell in cells:
        lines.setdefault((cell.network, cell.prior, cell.method), {})[cell.dataset, cell.size] = cell
    rows = [
        [*_names(line), *(f"{of[c].mean:g} ({of[c].low:g}–{of[c].high:g})" for c in columns)]
        for line, of in lines.items()
    ]
    return markdown_table(_head(columns), rows)


def _column_order(column: Column) -> tuple[int, int]:
    return list(DATASETS).index(column[0]), column[1]


def _head(columns: Sequence[Column]) -> list[str]:
    return ["network", "model", "method", *(f"{DATASETS[name].title}, N = {size}" for name, size in columns)]


def _names(line: tuple[str, str, str]) -> list[str]:
    network, prior, method = line
    return [network, prior, TITLES[method]]


def _at(rows: list[Row], line: tuple[str, str, str], column: Column) -> list[Row]:
    network, prior, method = line
    return [
        row
        for row in rows
        if (row["network"], row["paper_prior"], row["method"]) == (network, prior, method)
        and (row["dataset"], row["train_size"]) == column
    ]


_LEARNED = ("map-grid", "la-lml", "de-elbo")
_IMAGE_ROWS = (
    ("ResNet-50", "L2-zero", _LEARNED),
    ("ResNet-50", "L2-SP", _LEARNED),
    ("ResNet-50", "PTYL (SSL)", ("map-grid", "de-elbo")),
    ("ResNet-50", "PTYL", ("map-grid", "de-elbo")),
    ("ViT-B/16", "L2-SP", ("map-grid", "de-elbo")),
    ("ConvNeXt-Tiny", "L2-SP", _LEARNED),
)
_ECE_ROWS = tuple((network, "L2-SP", ("la-lml", "elbo", "de-elbo")) for network in ("ResNet-50", "ConvNeXt-Tiny"))
_TEXT_ROWS = (("BERT-base", "L2-SP", _LEARNED),)

for _entry in (
    PaperTable("tab-image-acc", "balanced_accuracy", IMAGES, _IMAGE_ROWS, near=2.0),
    PaperTable("tab-image-nll", "nll", IMAGES, _IMAGE_ROWS, near=0.1),
    PaperTable("tab-image-ece", "ece", ("cifar10",), _ECE_ROWS, near=0.0),
    PaperTable("tab-text-acc", "balanced_accuracy", TEXTS, _TEXT_ROWS, near=2.0),
    PaperTable("tab-text-nll", "nll", TEXTS, _TEXT_ROWS, near=0.1),
):
    ENTRIES.register(_entry.name, _entry.title)(_entry)
