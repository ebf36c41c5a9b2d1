"""Folders of images: one folder for each class, or a table `targets.csv` beside the images."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from deelbo._extras import require
from deelbo._wording import counted, natural, some_of
from deelbo.data.examples import Data, Examples
from deelbo.data.tables import LabelledRows, assemble, label_texts, read_rows
from deelbo.data.targets import Targets, index_labels

TARGETS_FILE, FILE_COLUMN = "targets.csv", "file"


def read_folder(path: Path, label_columns: Sequence[str] = (), task: str | None = None, skip_bad: bool = False) -> Data:
    """Read `train/` and, if it is there, `test/` of a folder, or the folder itself.

    Each has a folder for each class, or a table `targets.csv` beside its images, with a column `file` and one or more
    columns of labels or numbers. Folders below a class belong to it. Hidden files are left out; so are files whose
    names do not end like an image's, which a note counts.

    Args:
        path: The folder.
        label_columns: Names of the label columns of `targets.csv`; all but `file` if empty.
        task: Task that the labels of `targets.csv` stand for; recognised from the labels if None.
        skip_bad: Whether to leave rows of `targets.csv` without label or image out instead of refusing them.

    Raises:
        ValueError: If there are no classes, an empty class, or test labels that training never saw.
    """
    trains, tests = path / "train", path / "test"
    notes: list[str] = []
    folders = [p.name for p in sorted(path.iterdir()) if p.is_dir() and not p.name.startswith(".")]
    if trains.is_dir() and (unused := [name for name in folders if name not in ("train", "test")]):
        notes.append(f"{path}: only train and test are read, not {', '.join(unused)}")
    if not trains.is_dir() and folders and set(folders) <= _SPLITS:
        raise ValueError(f"{path} has {', '.join(folders)}: call the folder of the training images train")
    train_folder = trains if trains.is_dir() else path
    test_folder = tests if trains.is_dir() and tests.is_dir() else None
    if (train_folder / TARGETS_FILE).is_file():
        return _read_listed(train_folder, test_folder, label_columns, task=task, skip_bad=skip_bad, notes=notes)
    if task not in (None, "classification"):
        raise ValueError(f"task={task!r} needs a table {train_folder / TARGETS_FILE} with the columns file and label")
    files = _classes(train_folder, notes)
    test_files = None if test_folder is None else _classes(test_folder, notes)
    classes, labels, test_labels = index_labels(
        [n for n, _ in files], None if test_files is None else [n for n, _ in test_files]
    )
    test = None if test_files is None or test_labels is None else _examples(test_files, test_labels)
    return Data("image", Targets("classification", classes), _examples(files, labels), test, notes)


def _read_listed(
    train: Path, test: Path | None, label_columns: Sequence[str], *, task: str | None, skip_bad: bool, notes: list[str]
) -> Data:
    """Read images whose labels are in `targets.csv`."""
    columns = list(label_columns)

    def listed(folder: Path) -> LabelledRows:
        rows = read_rows(folder / TARGETS_FILE, (FILE_COLUMN, *columns))
        columns[:] = columns or [name for name in rows[0] if name != FILE_COLUMN]
        if not columns:
            raise ValueError(f"{folder / TARGETS_FILE} has no column beside {FILE_COLUMN}")
        files = [str(row[FILE_COLUMN] or "").strip() for row in rows]
        paths = [folder / file for file in files]
        if not skip_bad and (
            lost := [str(path) for file, path in zip(files, paths, strict=True) if file and not path.is_file()]
        ):
            raise ValueError(
                f"{folder / TARGETS_FILE} names images that are not there: {some_of(lost, 2)}; skip_bad=True leaves "
                "such rows out"
            )
        listed_files = {path.resolve() for path in paths}
        if others := [path for path in images_below(folder)[0] if path.resolve() not in listed_files]:
            notes.append(
                f"{folder}: {counted(len(others), 'image')} not in {TARGETS_FILE} left out, such as {others[0].name}"
            )
        return LabelledRows(
            folder / TARGETS_FILE, [p if p.is_file() else None for p in paths], label_texts(rows, columns)
        )

    train_rows = listed(train)
    test_rows = None if test is None else listed(test)
    data = assemble("image", train_rows, test_rows, label_columns=columns, task=task, skip_bad=skip_bad)
    data.notes[:0] = notes
    return data


# If all folders have such names, they are parts of the data rather than classes.
_SPLITS = {"training", "val", "valid", "validation", "test", "testing"}


def images_below(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the files in a folder and below it: those whose names end like an image's, and the others."""
    below = (Path(at) / name for at, _, names in os.walk(folder, followlinks=True) for name in names)
    files = [p for p in below if not _hidden(p, folder)]  # with broken links, which reading reports
    images = [p for p in files if p.suffix.lower() in image_suffixes()]
    return sorted(images, key=lambda p: natural(str(p))), [p for p in files if p.suffix.lower() not in image_suffixes()]


@cache
def image_suffixes() -> frozenset[str]:
    """Return the file name extensions of all formats that PIL reads."""
    Image = require("PIL.Image", "vision")
    Image.init()
    return frozenset(suffix for suffix, format in Image.registered_extensions().items() if format in Image.OPEN)


def _classes(folder: Path, notes: list[str]) -> list[tuple[str, Path]]:
    folders = sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    if not folders:
        raise ValueError(f"{folder} has no folders: images are expected in {folder}/CLASS/")
    if loose := [p for p in folder.iterdir() if p.is_file() and p.suffix.lower() in image_suffixes()]:
        notes.append(f"{folder}: {len(loose)} images in no class are left out, such as {loose[0].name}")
    files = []
    for class_folder in folders:
        images, others = images_below(class_folder)
        if not images:
            raise ValueError(f"class {class_folder.name} is empty: no image in {class_folder}")
        if others:
            notes.append(
                f"{class_folder}: {len(others)} files that are no images are left out, such as {others[0].name}"
            )
        files += [(class_folder.name, image) for image in images]
    return files


def _examples(files: list[tuple[str, Path]], labels: list[int]) -> Examples:
    return Examples([path for _, path in files], labels, [str(path) for _, path in files])


def _hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(folder).parts)
