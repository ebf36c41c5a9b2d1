"""Datasets by name, in the formats of torchvision and Hugging Face."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from deelbo._extras import require
from deelbo._hub import cache_without_network
from deelbo._wording import first_line
from deelbo.data.examples import Data, Examples
from deelbo.data.targets import Targets, index_labels

# Name of the column of inputs in the Hugging Face version; the column of labels is "label".
_INPUTS = {"cifar10": "img", "flowers102": "image", "pets": "image", "ag_news": "text"}
NAMES = tuple(_INPUTS)


def read_named(name: str, data_dir: Path | None) -> Data:
    """Read a dataset from a folder, or download it there.

    Args:
        name: One of `NAMES`.
        data_dir: A folder with torchvision's files, a Hugging Face dataset (saved to disk, or Parquet files), or
            neither yet; None for `data/` in the current folder.

    Raises:
        ValueError: If the folder has no such dataset and it cannot be downloaded.
    """
    folder = data_dir or Path("data")
    if hub_files := _hub_files(folder, name):
        return _from_hugging_face(name, hub_files)
    if name == "ag_news":
        return _ag_news(folder)
    read = {"cifar10": _cifar10, "flowers102": _flowers102, "pets": _pets}[name]
    try:
        return read(folder, False)
    except RuntimeError:  # torchvision raises it if the files are missing or damaged
        try:
            return read(folder, True)
        except (RuntimeError, OSError) as error:
            with suppress(OSError):  # the empty folder that the attempt left
                folder.rmdir()
            raise _no_network(name, folder, error) from error


def _cifar10(folder: Path, download: bool) -> Data:
    sets = [
        require("torchvision.datasets", "vision").CIFAR10(folder, train=train, download=download)
        for train in (True, False)
    ]
    from PIL import Image

    parts = [
        _examples([Image.fromarray(array) for array in dataset.data], dataset.targets, f"{folder}, {part}")
        for dataset, part in zip(sets, ("train", "test"), strict=True)
    ]
    return Data("image", _classes(sets[0].classes), parts[0], parts[1])


def _flowers102(folder: Path, download: bool) -> Data:
    """As in the paper: 1,020 training images of the official split, 6,149 test images."""
    sets = [
        require("torchvision.datasets", "vision").Flowers102(folder, split=split, download=download)
        for split in ("train", "test")
    ]
    classes = getattr(sets[0], "classes", [str(i + 1) for i in range(102)])
    train, test = (_files(dataset._image_files, dataset._labels) for dataset in sets)
    return Data("image", _classes(classes), train, test)


def _pets(folder: Path, download: bool) -> Data:
    sets = [
        require("torchvision.datasets", "vision").OxfordIIITPet(folder, split=split, download=download)
        for split in ("trainval", "test")
    ]
    train, test = (_files(dataset._images, dataset._labels) for dataset in sets)
    return Data("image", _classes(sets[0].classes), train, test)


def _ag_news(folder: Path) -> Data:
    datasets = require("datasets", "text")
    try:
        with cache_without_network():
            loaded = datasets.load_dataset("fancyzhx/ag_news", cache_dir=str(folder))
    except Exception as error:  # the hub's client raises a dozen unrelated types
        raise _no_network("ag_news", folder, error) from error
    return _convert("ag_news", loaded, folder)


def _hub_files(folder: Path, name: str) -> Path | None:
    """Return the folder of a Hugging Face dataset: saved to disk, or as Parquet files named train-* and test-*.

    A folder with the name of the dataset is preferred to the given one, where other datasets may be as well.
    """
    for candidate in (folder / name, folder):
        if (candidate / "dataset_dict.json").is_file() or _parquet(candidate, "train"):
            return candidate
    return None


def _parquet(folder: Path, part: str) -> list[str]:
    """Return the Parquet files of a part below a folder, without those in folders with the names of datasets."""
    paths = sorted(folder.glob(f"**/{part}*.parquet"))
    return [str(path) for path in paths if not set(path.relative_to(folder).parts) & set(NAMES)]


def _from_hugging_face(name: str, folder: Path) -> Data:
    datasets = require("datasets", "text")
    if (folder / "dataset_dict.json").is_file():
        return _convert(name, datasets.load_from_disk(str(folder)), folder)
    files = {part: _parquet(folder, part) for part in ("train", "test")}
    try:
        loaded = {split: datasets.Dataset.from_parquet(paths) for split, paths in files.items() if paths}
    except datasets.exceptions.DatasetsError as error:
        raise ValueError(f"{folder}: its Parquet files cannot be read together ({first_line(error)})") from error
    return _convert(name, loaded, folder)


def _convert(name: str, loaded: Any, folder: Path) -> Data:
    inputs, label = _INPUTS[name], "label"
    columns, classes = {}, None
    for split in [split for split in ("train", "test") if split in loaded]:
        rows = loaded[split]
        if missing := [column for column in (inputs, label) if column not in rows.features]:
            raise ValueError(f"{folder}, {split}: no column {', '.join(missing)}; it has {', '.join(rows.features)}")
        classes = classes or getattr(rows.features[label], "names", None)
        if name != "ag_news":
            rows = rows.cast_column(inputs, require("datasets", "text").Image(decode=False))
        items = [v if isinstance(v, str) else v["bytes"] or Path(v["path"]) for v in rows[inputs]]
        columns[split] = items, list(rows[label])
    train, test = (columns[split][1] if split in columns else None for split in ("train", "test"))
    if train is None:
        raise ValueError(f"{folder} has no part called train")
    if classes is None:  # the labels have no names: they are their own names
        classes, train, test = index_labels([str(v) for v in train], None if test is None else [str(v) for v in test])
    parts = [
        None if labels is None else _examples(columns[split][0], labels, f"{folder}, {split}")
        for split, labels in (("train", train), ("test", test))
    ]
    assert parts[0] is not None
    return Data("text" if name == "ag_news" else "image", _classes(classes), parts[0], parts[1])


def _classes(names: Any) -> Targets:
    return Targets("classification", list(names))


def _examples(inputs: list[Any], labels: Any, where: str) -> Examples:
    return Examples(inputs, [int(label) for label in labels], [f"{where}, {i + 1}" for i in range(len(inputs))])


def _files(paths: Any, labels: Any) -> Examples:
    return Examples([Path(p) for p in paths], [int(label) for label in labels], [str(p) for p in paths])


def _no_network(name: str, folder: Path, error: Exception) -> ValueError:
    reason = first_line(error)
    return ValueError(
        f"{name} is not in {folder} and cannot be downloaded ({reason}); data_dir=FOLDER says where it is"
    )
