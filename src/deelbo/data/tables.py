"""Tables of texts: CSV, TSV, JSONL and Parquet."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from deelbo._extras import require
from deelbo._words import first_line
from deelbo.data.examples import Data, Examples, index_labels

SUFFIXES = (".csv", ".tsv", ".jsonl", ".parquet")


def is_table(path: Path) -> bool:
    """Tell whether a file is a table by its name."""
    return path.suffix.lower() in SUFFIXES


def read_tables(path: Path, text_column: str, label_column: str, skip_bad: bool) -> Data:
    """Read a table, or `train.*` and, if it is there, `test.*` of a folder.

    Raises:
        ValueError: If a column is missing, a row has no text or label (unless skipped), or test labels are new.
    """
    train_file, test_file = (path, None) if path.is_file() else (_only(path, "train"), _only(path, "test"))
    assert train_file is not None
    data = Data("text", [], Examples([], [], []))
    columns = (text_column, label_column)
    data.train, labels = _labelled(train_file, columns, skip_bad, data)
    test_labels = None
    if test_file is not None:
        data.test, test_labels = _labelled(test_file, columns, skip_bad, data)
    data.classes, data.train.labels, indices = index_labels(labels, test_labels)
    if data.test is not None and indices is not None:
        data.test.labels = indices
    return data


def read_rows(path: Path, columns: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the rows of a table by column, with its columns checked.

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
    except (ValueError, OSError, csv.Error) as error:  # the parsers' errors among them
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
    csv.field_size_limit(2**31 - 1)  # a text may be as long as it likes
    with path.open(encoding="utf-8-sig", newline="") as file:
        # Strict, or a stray quotation mark would swallow the rows up to the next one.
        reader = csv.DictReader(file, delimiter="\t" if suffix == ".tsv" else ",", strict=True)
        rows: list[dict[str, Any]] = []
        for row in reader:
            if None in row:
                raise ValueError(f"row {len(rows) + 1} has more fields than the header: quote texts with commas")
            rows.append(row)
    return rows


def _labelled(path: Path, columns: tuple[str, str], skip_bad: bool, data: Data) -> tuple[Examples, list[str]]:
    rows = read_rows(path, columns)
    texts, labels = ([_text(row.get(column)).strip() for row in rows] for column in columns)
    bad = [i for i in range(len(rows)) if not texts[i] or not labels[i]]
    if bad and not skip_bad:
        raise ValueError(f"{path}, row {bad[0] + 1}: no text or no label; --skip-bad leaves such rows out ({len(bad)})")
    if bad:
        data.notes.append(f"{path}: {len(bad)} rows without text or label are left out, the first is row {bad[0] + 1}")
        data.skipped += [f"{path}, row {i + 1}" for i in bad]
    kept = [i for i in range(len(texts)) if texts[i] and labels[i]]
    if not kept:
        raise ValueError(f"{path} has no row with text and label")
    examples = Examples([texts[i] for i in kept], [], [f"{path}, row {i + 1}" for i in kept])
    return examples, [labels[i] for i in kept]


def _text(value: Any) -> str:
    """As text; a missing value is empty, and a whole number that a missing one elsewhere made a float is whole."""
    if value is None or value != value:
        return ""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _only(folder: Path, stem: str) -> Path | None:
    found = sorted(p for p in folder.glob(f"{stem}.*") if is_table(p))
    if len(found) > 1:
        raise ValueError(f"{folder} has several: {', '.join(p.name for p in found)}")
    return found[0] if found else None
