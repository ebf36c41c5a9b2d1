"""Reading labelled examples from folders, tables and named datasets, and making datasets of them."""

from __future__ import annotations

from pathlib import Path

from deelbo.data.examples import Data, Examples, split, stratified_subset
from deelbo.data.folders import read_folder
from deelbo.data.named import NAMES, read_named
from deelbo.data.tables import is_table, read_tables
from deelbo.data.targets import Targets, translate
from deelbo.likelihoods import likelihood_of_task

__all__ = ["NAMES", "Data", "Examples", "Targets", "load_data", "load_labelled", "split", "stratified_subset"]


def load_data(
    data: str | Path,
    *,
    data_dir: str | Path | None = None,
    text_column: str = "text",
    label_column: str = "label",
    task: str | None = None,
    skip_bad: bool = False,
) -> Data:
    """Read labelled examples.

    Args:
        data: A folder of images (`train/CLASS/*`, `CLASS/*`, or images with a table `targets.csv` beside them); a CSV,
            TSV, JSONL or Parquet file of texts, or a folder with `train.*` and `test.*` of them; or a name: cifar10,
            flowers102, pets, ag_news.
        data_dir: Folder where a named dataset is, or is downloaded to.
        text_column: Name of the column that holds the text.
        label_column: Name of the column that holds the label; several names separated by commas for several numbers,
            or for several labels with a column of 0 and 1 each.
        task: "classification", "regression" or "multilabel"; recognised from the labels if None.
        skip_bad: Whether to leave rows without text or label out instead of refusing them.

    Raises:
        FileNotFoundError: If there is no such folder, file or name.
        ValueError: If a folder is empty, a column is missing, or the test set has labels that training never saw.
    """
    if task is not None:
        likelihood_of_task(task)  # raises an error for an unknown task
    if str(data) in NAMES and not Path(data).exists():
        return read_named(str(data), None if data_dir is None else Path(data_dir))
    path = Path(data)
    if data_dir is not None:
        raise ValueError(f"data_dir={data_dir} belongs to a named dataset ({', '.join(NAMES)}), not to {data}")
    if not path.exists():
        raise FileNotFoundError(f"{data} is no file, no folder and none of the names {', '.join(NAMES)}")
    columns = [name.strip() for name in label_column.split(",")]
    if not all(columns) or len(set(columns)) < len(columns):
        raise ValueError(f"label_column={label_column}: write different names with commas between them")
    tables = is_table(path) if path.is_file() else any(is_table(p) for p in path.glob("train.*"))
    if path.is_file() and not tables:
        raise ValueError(f"{path} is no table: CSV, TSV, JSONL or Parquet is read")
    if tables:
        return read_tables(path, text_column, columns, task, skip_bad)
    return read_folder(path, [] if columns == ["label"] else columns, task, skip_bad)


def load_labelled(data: str, kind: str, targets: Targets, **reading: str | bool | None) -> Examples:
    """Read examples to test a trained network on: the test part of the data if there is one, else all examples.

    Args:
        data: A folder, a file or a name, as for `load_data`.
        kind: Kind of the inputs that the network takes, "image" or "text".
        targets: What the network predicts.
        reading: Further arguments of `load_data`, by name.

    Raises:
        ValueError: If the data are of another kind, or have a label that the network does not know.
    """
    loaded = load_data(data, task=targets.task, **reading)  # type: ignore[arg-type]
    if loaded.kind != kind:
        raise ValueError(f"{data} has {loaded.kind}s, but the run's network takes {kind}s")
    examples = loaded.test or loaded.train
    labels = translate(examples.labels, loaded.targets, targets, data)
    return Examples(examples.inputs, labels, examples.names)
