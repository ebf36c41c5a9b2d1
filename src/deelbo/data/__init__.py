"""From folders, tables and names to labelled examples, and from those to datasets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from deelbo.data.examples import Data, Examples, split, stratified_subset
from deelbo.data.folders import read_folder
from deelbo.data.named import NAMES, read_named
from deelbo.data.tables import is_table, read_tables

__all__ = ["NAMES", "Data", "Examples", "load_data", "load_labelled", "split", "stratified_subset"]


def load_data(
    source: str | Path,
    *,
    data_dir: str | Path | None = None,
    text_column: str = "text",
    label_column: str = "label",
    skip_bad: bool = False,
) -> Data:
    """Read labelled examples.

    Args:
        source: A folder of images (`train/CLASS/*`, or `CLASS/*`); a CSV, TSV, JSONL or Parquet file, or a folder with
            `train.*` and `test.*` of them; or a name: cifar10, flowers102, pets, ag_news.
        data_dir: Where a named dataset is, or is downloaded to.
        text_column: Of a table.
        label_column: Of a table.
        skip_bad: Leave rows without text or label out instead of refusing them.

    Raises:
        FileNotFoundError: If there is no such folder, file or name.
        ValueError: If a folder is empty, a column is missing, or the test set has labels that training never saw.
    """
    if str(source) in NAMES and not Path(source).exists():
        return read_named(str(source), None if data_dir is None else Path(data_dir))
    path = Path(source)
    if data_dir is not None:
        raise ValueError(f"--data-dir belongs to a named dataset ({', '.join(NAMES)}), not to {source}")
    if not path.exists():
        raise FileNotFoundError(f"{source} is no file, no folder and none of the names {', '.join(NAMES)}")
    tables = is_table(path) if path.is_file() else any(is_table(p) for p in path.glob("train.*"))
    if path.is_file() and not tables:
        raise ValueError(f"{path} is no table: CSV, TSV, JSONL or Parquet is read")
    return read_tables(path, text_column, label_column, skip_bad) if tables else read_folder(path)


def load_labelled(
    source: str,
    kind: str,
    classes: Sequence[str],
    data_dir: str | None = None,
    text_column: str = "text",
    label_column: str = "label",
    skip_bad: bool = False,
) -> Examples:
    """Read examples to test a trained classifier on: the test part of the data if there is one, else all of them.

    Args:
        source: See `load_data`; likewise the others.
        kind: What the classifier takes, "image" or "text".
        classes: Those it knows.
        data_dir: See `load_data`.
        text_column: See `load_data`.
        label_column: See `load_data`.
        skip_bad: See `load_data`.

    Raises:
        ValueError: If the data are of another kind, or have a label that the classifier does not know.
    """
    columns = {"text_column": text_column, "label_column": label_column}
    data = load_data(source, data_dir=data_dir, skip_bad=skip_bad, **columns)
    if data.kind != kind:
        raise ValueError(f"{source} has {data.kind}s, but the run's network takes {kind}s")
    examples = data.test or data.train
    if unknown := sorted({data.classes[i] for i in examples.labels} - set(classes)):
        raise ValueError(f"{source} has labels that training never saw: {', '.join(unknown)}")
    index = {name: i for i, name in enumerate(classes)}
    return Examples(examples.sources, [index[data.classes[i]] for i in examples.labels], examples.names)
