"""Tables of texts with labels: CSV, TSV, JSONL and Parquet."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deelbo._extras import require
from deelbo._wording import counted, first_line
from deelbo.data.examples import Data, Examples
from deelbo.data.targets import SEPARATOR, RawLabels, encode, is_missing, misfit, recognise_task

SUFFIXES = (".csv", ".tsv", ".jsonl", ".parquet")


def is_table(path: Path) -> bool:
    """Tell by the name of a file whether it is a table."""
    return path.suffix.lower() in SUFFIXES


@dataclass
class LabelledRows:
    """Inputs and label texts of one table, before they are checked.

    Args:
        path: Path of the table.
        inputs: Texts, or paths of images.
        labels: For each row one text for each label column.
    """

    path: Path
    inputs: list[Any]
    labels: RawLabels


def read_tables(path: Path, text_column: str, label_columns: Sequence[str], task: str | None, skip_bad: bool) -> Data:
    """Read a table, or `train.*` and, if it is there, `test.*` of a folder.

    Args:
        path: Path of the table or of the folder.
        text_column: Name of the column that holds the text.
        label_columns: Names of the columns that hold the labels.
        task: Task that the labels stand for; recognised from the labels if None.
        skip_bad: Whether to leave rows without text or label out instead of refusing them.

    Raises:
        ValueError: If a column is missing, or is both text and label; if a row has no text or no fitting label (unless
            skipped); or if test labels are new.
    """
    if text_column in label_columns:
        raise ValueError(f"label_column={text_column} is the column of the text too")
    train_file, test_file = (path, None) if path.is_file() else (_only(path, "train"), _only(path, "test"))
    assert train_file is not None

    def labelled(file: Path) -> LabelledRows:
        rows = read_rows(file, (text_column, *label_columns))
        texts = [_text(row.get(text_column)).strip() for row in rows]
        return LabelledRows(file, texts, label_texts(rows, label_columns))

    tables = (labelled(train_file), None if test_file is None else labelled(test_file))
    return assemble("text", *tables, label_columns=label_columns, task=task, skip_bad=skip_bad)


def assemble(
    kind: str,
    train: LabelledRows,
    test: LabelledRows | None,
    *,
    label_columns: Sequence[str],
    task: str | None,
    skip_bad: bool,
) -> Data:
    """Recognise the task, leave bad rows out or refuse them, and turn label texts into targets.

    Args:
        kind: Kind of the inputs, "image" or "text".
        train: Rows to train on.
        test: Rows to test on, if there are any.
        label_columns: Names of the columns that hold the labels.
        task: Task that the labels stand for; recognised from the labels if None.
        skip_bad: Whether to leave rows without input or label out instead of refusing them.

    Raises:
        ValueError: If a row lacks input or label and is not to be skipped, or a label does not fit the task.
    """
    notes: list[str] = []
    skipped: list[str] = []
    if task is None:
        task, reason = recognise_task(train.labels)
        if task != "classification" or reason != "labels are names":
            other = "regression" if task == "classification" else "classification"
            notes.append(f"recognised as {task}: {reason}; if that is wrong, say task={other!r}")
    bad_rows: dict[str, Any] = {"skip_bad": skip_bad, "notes": notes, "skipped": skipped}
    parts = [None if rows is None else _whole_rows(kind, rows, task, **bad_rows) for rows in (train, test)]
    assert parts[0] is not None
    (examples, labels), (test_examples, test_labels) = parts[0], parts[1] or (None, None)
    targets, examples.labels, encoded = encode(task, label_columns, labels, test_labels)
    if test_examples is not None and encoded is not None:
        test_examples.labels = encoded
    if task == "multilabel" and (bare := sum(not any(row) for row in examples.labels)):
        notes.append(f"{bare:,} of {len(examples):,} training examples have no label at all")
    return Data(kind, targets, examples, test_examples, notes, skipped)


def _whole_rows(
    kind: str, rows: LabelledRows, task: str, *, skip_bad: bool, notes: list[str], skipped: list[str]
) -> tuple[Examples, RawLabels]:
    """Return the rows that have an input and a label that fits the task."""
    faults: dict[int, str] = {}
    for i, (item, labels) in enumerate(zip(rows.inputs, rows.labels, strict=True)):
        if not item or is_missing(labels, task):
            faults[i] = f"no {kind} or no label"
        elif (text := misfit(labels, task)) is not None:
            needed = "a finite number" if task == "regression" else "0 or 1"
            faults[i] = f"the label {text!r} is not {needed}, which {task} needs"
    kept = [i for i in range(len(rows.labels)) if i not in faults]
    if faults:
        first, fault = next(iter(faults.items()))
        remedy = f"skip_bad=True leaves such rows out ({len(faults)})" if kept else "no row has what is needed"
        if not skip_bad or not kept:
            raise ValueError(f"{rows.path}, row {first + 1}: {fault}; {remedy}")
        notes.append(f"{rows.path}: {counted(len(faults), 'row')} left out; the first is row {first + 1}: {fault}")
        skipped += [f"{rows.path}, row {i + 1}" for i in faults]
    names = [str(rows.inputs[i]) if kind == "image" else f"{rows.path}, row {i + 1}" for i in kept]
    return Examples([rows.inputs[i] for i in kept], [], names), [rows.labels[i] for i in kept]


def read_rows(path: Path, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Return the rows of a table as dictionaries, after checking that the table has some columns.

    Raises:
        ValueError: If the file cannot be read, lacks a column, or a row has more fields than the header.
    """
    suffix = path.suffix.lower()
    try:
        if suffix == ".parquet":
            rows = require("pyarrow.parquet", "text").read_table(path).to_pylist()
        elif suffix == ".jsonl":
            lines = path.read_text(encoding="utf-8-sig").split("\n")
            rows = [json.loads(line) for line in lines if line.strip()]
        else:
            rows = _read_separated(path, suffix)
    except (ValueError, OSError, csv.Error) as error:  # the errors of the parsers are ValueErrors too
        raise ValueError(f"{path} cannot be read as {suffix[1:]}: {first_line(error)}") from error
    if not rows:
        raise ValueError(f"{path} has no rows")
    if not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{path}: each line must be an object with the columns as keys")
    names = dict.fromkeys(name for row in rows for name in row)
    for column in columns:
        if column not in names:
            raise ValueError(f'{path} has no column "{column}"; its columns are {", ".join(map(str, names))}')
    return rows


def _read_separated(path: Path, suffix: str) -> list[dict[str, Any]]:
    csv.field_size_limit(2**31 - 1)  # the default limit is too small for long texts
    with path.open(encoding="utf-8-sig", newline="") as file:
        # Without strict=True, a stray quotation mark would join all rows up to the next quotation mark.
        reader = csv.DictReader(file, delimiter="\t" if suffix == ".tsv" else ",", strict=True)
        rows: list[dict[str, Any]] = []
        for row in reader:
            if None in row:
                raise ValueError(f"row {len(rows) + 1} has more fields than the header: quote texts with commas")
            rows.append(row)
    return rows


def label_texts(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> RawLabels:
    """Return the label columns of rows as texts; a list of labels becomes one text."""

    def text(value: Any) -> str:
        if isinstance(value, (list, tuple)):
            return SEPARATOR.join(_text(part).strip() for part in value) or SEPARATOR
        if isinstance(value, bool) and len(columns) > 1:  # yes or no for each label
            return str(int(value))
        return _text(value).strip()

    return [[text(row.get(column)) for column in columns] for row in rows]


def _text(value: Any) -> str:
    """Return a value as text: "" if it is missing, and "3" for 3.0, since a column with gaps has floats."""
    if value is None or value != value:
        return ""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _only(folder: Path, stem: str) -> Path | None:
    tables = sorted(p for p in folder.glob(f"{stem}.*") if is_table(p))
    if len(tables) > 1:
        raise ValueError(f"{folder} has several tables for the same part: {', '.join(p.name for p in tables)}")
    return tables[0] if tables else None
