"""Tables of texts: CSV, TSV, JSONL and Parquet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from deelbo._extras import require
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
    notes: list[str] = []
    columns = (text_column, label_column)
    train, labels = _labelled(train_file, columns, skip_bad, notes)
    test, test_labels = (None, None) if test_file is None else _labelled(test_file, columns, skip_bad, notes)
    classes, train.labels, indices = index_labels(labels, test_labels)
    if test is not None and indices is not None:
        test.labels = indices
    return Data("text", classes, train, test, notes)


def read_rows(path: Path, columns: tuple[str, ...]) -> Any:
    """Return a table as a data frame of strings, with its columns checked.

    Raises:
        ValueError: If the file cannot be read or lacks a column.
    """
    pandas = require("pandas", "text")
    suffix = path.suffix.lower()
    try:
        if suffix == ".parquet":
            frame = pandas.read_parquet(path)
        elif suffix == ".jsonl":
            rows = path.read_text(encoding="utf-8-sig").splitlines()
            frame = pandas.DataFrame([json.loads(row) for row in rows if row.strip()])
        else:
            # The words NA, None and null are texts like any other.
            separator = "\t" if suffix == ".tsv" else ","
            frame = pandas.read_csv(path, sep=separator, dtype=str, keep_default_na=False, encoding="utf-8-sig")
    except (ValueError, OSError) as error:  # pandas' and pyarrow's parser errors among them
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ValueError(f"{path} cannot be read as {suffix[1:]}: {first}") from error
    for column in columns:
        if column not in frame:
            raise ValueError(f'{path} has no column "{column}"; its columns are {", ".join(map(str, frame))}')
    if frame.empty:
        raise ValueError(f"{path} has no rows")
    return frame


def _labelled(path: Path, columns: tuple[str, str], skip_bad: bool, notes: list[str]) -> tuple[Examples, list[str]]:
    frame = read_rows(path, columns)
    missing = frame[list(columns)].isna().to_numpy()
    texts, labels = ([_text(value) for value in frame[column]] for column in columns)
    bad = {i for i in range(len(texts)) if missing[i].any() or not texts[i].strip() or not labels[i].strip()}
    if bad and not skip_bad:
        raise ValueError(
            f"{path}, row {min(bad) + 1}: no text or no label; --skip-bad leaves such rows out ({len(bad)})"
        )
    if bad:
        notes.append(f"{path}: {len(bad)} rows without text or label are left out, the first is row {min(bad) + 1}")
    kept = [i for i in range(len(texts)) if i not in bad]
    if not kept:
        raise ValueError(f"{path} has no row with text and label")
    examples = Examples([texts[i] for i in kept], [], [f"{path}, row {i + 1}" for i in kept])
    return examples, [labels[i] for i in kept]


def _text(value: Any) -> str:
    """A whole number that a missing value elsewhere turned into a float is a whole number still."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _only(folder: Path, stem: str) -> Path | None:
    found = sorted(p for p in folder.glob(f"{stem}.*") if is_table(p))
    if len(found) > 1:
        raise ValueError(f"{folder} has several: {', '.join(p.name for p in found)}")
    return found[0] if found else None
