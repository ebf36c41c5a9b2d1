"""Folders of images, one folder a class."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from deelbo._extras import require
from deelbo.data.examples import Data, Examples, index_labels, natural


def read_folder(path: Path) -> Data:
    """Read `train/CLASS/*` and, if it is there, `test/CLASS/*`; or `CLASS/*`.

    Folders below a class belong to it. Hidden files are left out; so are files that no image format is named like,
    which a note counts.

    Raises:
        ValueError: If there are no classes, an empty class, or test labels that training never saw.
    """
    trains, tests = path / "train", path / "test"
    notes: list[str] = []
    beside = [p.name for p in sorted(path.iterdir()) if p.is_dir() and not p.name.startswith(".")]
    if trains.is_dir() and (unused := [name for name in beside if name not in ("train", "test")]):
        notes.append(f"{path}: only train and test are read, not {', '.join(unused)}")
    if beside and set(beside) <= _SPLITS:
        raise ValueError(f"{path} has {', '.join(beside)}: call the folder of the training classes train")
    files = _classes(trains if trains.is_dir() else path, notes)
    held = _classes(tests, notes) if trains.is_dir() and tests.is_dir() else None
    names, test_names = ([n for n, _ in pairs] if pairs is not None else None for pairs in (files, held))
    assert names is not None
    classes, labels, test_labels = index_labels(names, test_names)
    test = None if held is None or test_labels is None else _examples(held, test_labels)
    return Data("image", classes, _examples(files, labels), test, notes)


# Folders of these names alone are parts of the data rather than classes.
_SPLITS = {"training", "val", "valid", "validation", "test", "testing"}


def images_below(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the files of a folder and the folders below it that are named like images, and the others."""
    below = (Path(at) / name for at, _, names in os.walk(folder, followlinks=True) for name in names)
    files = [p for p in below if not _hidden(p, folder)]  # broken links too: they are named when they cannot be read
    images = [p for p in files if p.suffix.lower() in image_suffixes()]
    return sorted(images, key=lambda p: natural(str(p))), [p for p in files if p.suffix.lower() not in image_suffixes()]


@cache
def image_suffixes() -> frozenset[str]:
    """Return the file name endings of every format that PIL reads."""
    Image = require("PIL.Image", "vision")
    Image.init()
    return frozenset(suffix for suffix, format in Image.registered_extensions().items() if format in Image.OPEN)


def _classes(folder: Path, notes: list[str]) -> list[tuple[str, Path]]:
    folders = sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    if not folders:
        raise ValueError(f"{folder} has no folders: images are expected in {folder}/CLASS/")
    if loose := [p for p in folder.iterdir() if p.is_file() and p.suffix.lower() in image_suffixes()]:
        notes.append(f"{folder}: {len(loose)} images in no class are left out, such as {loose[0].name}")
    found = []
    for each in folders:
        images, others = images_below(each)
        if not images:
            raise ValueError(f"class {each.name} is empty: no image in {each}")
        if others:
            notes.append(f"{each}: {len(others)} files that are no images are left out, such as {others[0].name}")
        found += [(each.name, image) for image in images]
    return found


def _examples(files: list[tuple[str, Path]], labels: list[int]) -> Examples:
    return Examples([path for _, path in files], labels, [str(path) for _, path in files])


def _hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(folder).parts)
