"""The work of `deelbo predict`: predictions of a finished run for files, folders, tables and lines of text."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deelbo import events
from deelbo.data.examples import Examples
from deelbo.data.folders import images_below
from deelbo.data.tables import is_table, read_rows
from deelbo.likelihoods import PredictedRow
from deelbo.loading import load


@dataclass(frozen=True)
class PredictedInput:
    """An input with its prediction.

    Args:
        input_columns: Columns that describe the input: its path or line, or the columns of its row in a table.
        columns: Columns of the prediction, under names that the input's row does not have.
        details: Further values that are too long for a table, such as the probabilities of all classes.
        shown: The prediction in a line for a person, in parts.
    """

    input_columns: dict[str, Any]
    columns: dict[str, Any]
    details: dict[str, Any]
    shown: tuple[str, ...]


def predict_job(
    run: Path,
    inputs: list[str],
    *,
    samples: int = 0,
    temperature: float | None = None,
    alpha: float | None = None,
    top: int = 1,
    text_column: str = "text",
    skip_bad: bool = False,
    lines: Iterable[str] = (),
    listener: events.Listener = events.ignore,
) -> list[PredictedInput]:
    """Return the predictions of a finished run.

    Args:
        run: Folder of the run.
        inputs: Images and folders of them, or tables of texts; "-" stands for `lines`.
        samples: Number of draws to average; 0 plugs in the mean weights.
        temperature: Temperature instead of the run's own; 1 for the network's plain outputs.
        alpha: Share of targets that may lie outside of prediction sets, which are added; None for no sets.
        top: Number of most probable classes to name.
        text_column: Name of the column that holds the text.
        skip_bad: Whether to leave unreadable images out instead of refusing them.
        lines: Lines of standard input, each a text or the path of an image.
        listener: Called with a note for each image that is left out.

    Raises:
        FileNotFoundError: If an input does not exist.
        ValueError: If there is nothing to predict, or an input cannot be read.
    """
    if top < 1 or samples < 0:
        raise ValueError(f"top={top}, samples={samples}: top must be at least 1, and samples at least 0")
    result = load(run)
    if alpha is not None and (samples or temperature is not None):
        raise ValueError(f"alpha={alpha}: prediction sets belong to the run's own temperature and its mean weights")
    limits = None if alpha is None else result.limits(alpha)
    if (reader := result.reader) is None:
        raise ValueError("this run's network was made in Python: use deelbo.load(path, model).predict(tensors)")
    items, columns = gather(inputs, reader.kind, text_column, lines)
    if not items:
        raise ValueError(f"no {reader.kind} in {', '.join(inputs)}")
    numbered = Examples(items, list(range(len(items))), [str(item) for item in items])
    dataset = reader.dataset(numbered, skip_bad)  # the "labels" are the inputs' numbers: unreadable ones are skipped
    for name in reader.bad:
        listener(events.Note(f"{name} cannot be read and is left out"))
    prediction = result.predict_dataset(dataset, samples, temperature=temperature)
    predicted = result.likelihood.describe(prediction, reader.targets.names, top)
    if limits is not None:
        if math.inf in limits:
            number = result.calibration.examples
            listener(events.Note(f"alpha={alpha}: {number} unseen examples are too few, so the sets hold everything"))
        sets = result.likelihood.sets(prediction, limits)
        rows = zip(predicted, result.likelihood.describe_sets(sets, prediction, reader.targets.names), strict=True)
        predicted = [
            PredictedRow({**row.columns, **inside.columns}, {**row.details, **inside.details}, row.shown + inside.shown)
            for row, inside in rows
        ]
    taken = {name for row in columns for name in row}
    added = {name for row in predicted for name in (*row.columns, *row.details)}
    prefix = "deelbo_" if taken & added else ""  # so that no column of the table is overwritten
    return [
        PredictedInput(
            columns[index],
            {prefix + name: value for name, value in row.columns.items()},
            {prefix + name: value for name, value in row.details.items()},
            row.shown,
        )
        for index, row in zip(dataset.examples.labels, predicted, strict=True)
    ]


def gather(
    inputs: list[str], kind: str, text_column: str, lines: Iterable[str]
) -> tuple[list[Any], list[dict[str, Any]]]:
    """Return the inputs, and for each of them the first columns of its row in the output."""
    items: list[Any] = []
    columns: list[dict[str, Any]] = []
    for name in inputs:
        path = Path(name)
        if name == "-":
            stripped = [line.rstrip("\r\n") for line in lines if line.strip()]
            items += stripped if kind == "text" else [Path(line) for line in stripped]
            columns += [{"input": line} for line in stripped]
        elif not path.exists():
            hint = "; texts come from a table, or from standard input by -" if kind == "text" else ""
            raise FileNotFoundError(f"{name}: no such file{hint}")
        elif kind == "text":
            if not is_table(path):
                raise ValueError(f"{path}: a table of texts is a CSV, TSV, JSONL or Parquet file")
            for i, row in enumerate(read_rows(path, (text_column,))):
                if row.get(text_column) is None:
                    raise ValueError(f"{path}, row {i + 1}: no text")
                items.append(str(row[text_column]))
                columns.append(row)
        elif path.is_file() and is_table(path):
            raise ValueError(f"{path} is a table, but the network of this run takes images")
        else:
            files = images_below(path)[0] if path.is_dir() else [path]
            items += files
            columns += [{"input": str(file)} for file in files]
    return items, columns
