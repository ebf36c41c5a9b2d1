"""The folder of a run while it trains: whose it is, what may be there, and whether there is space."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from deelbo._extras import require
from deelbo.result import read_run
from deelbo.training.settings import Settings

_CHECKPOINT = re.compile(r"(initial|learning-rate-.+)\.safetensors|\..+\.part")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a folder or file against other processes; the operating system lets go if this one dies.

    Raises:
        FileExistsError: If another process has it.
    """
    filelock = require("filelock", "training")
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    place = path.parent / f".{path.name}.lock"
    lock = filelock.FileLock(place)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise FileExistsError(f"another process is at work on {path}") from None
    try:
        yield
    finally:
        place.unlink(missing_ok=True)  # first, while it is held
        lock.release()


def run_differences(run: dict[str, Any], settings: Settings, about: dict[str, Any]) -> list[str]:
    """Say how a stored run differs from what is wanted, one line each."""
    stored = run.get("about", {})
    # Where the data are does not matter while they are the same.
    compared = {name: value for name, value in about.items() if name not in ("data", "data_dir") and name in stored}
    differences = settings.differences(run["settings"])
    return differences + [f"{n}: {stored[n]!r} -> {v!r}" for n, v in compared.items() if stored[n] != v]


def check_folder(folder: Path, settings: Settings, about: dict[str, Any]) -> bool:
    """Tell whether a folder holds an unfinished run of these settings, which can be resumed.

    Args:
        folder: Of the run.
        settings: Of the run.
        about: Further entries, compared where both have them.

    Raises:
        FileExistsError: If it holds a finished run, or something else.
        ValueError: If it holds an unfinished run of other settings.
    """
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file; choose a new folder")
    if not (folder / "run.json").exists():
        if folder.exists() and not all(map(_left_over, folder.iterdir())):
            raise FileExistsError(f"{folder} holds something else than a run; choose a new folder")
        return False
    run = read_run(folder)
    if run["status"] == "finished":
        raise FileExistsError(f"{folder} holds a finished run; choose a new folder")
    if differences := run_differences(run, settings, about):
        raise ValueError(f"{folder} holds an unfinished run with other settings:\n  " + "\n  ".join(differences))
    return True


def _left_over(path: Path) -> bool:
    """Whether something is from a run that was cut off before its `run.json`, or that diverged."""
    if path.name == "checkpoints" and path.is_dir():
        return all(_CHECKPOINT.fullmatch(each.name) for each in path.iterdir())
    return (path.name == "log" and path.is_dir()) or path.suffix == ".part"


def check_space(folder: Path, weights: dict[str, Tensor], settings: Settings) -> None:
    """Refuse a disk that the checkpoints would fill.

    Raises:
        OSError: If there is not enough space.
    """
    place = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    copies = 2 if settings.optimizer == "sgd" else 3  # the weights and the optimizer's buffers
    size = sum(value.numel() * value.element_size() for value in weights.values())
    needed = size * (copies * (len(settings.learning_rates) + 1) + 2) + 5_000_000  # the report and the rest
    free = shutil.disk_usage(place).free
    if free < needed:
        raise OSError(f"no space: a run needs {needed / 1e9:.2g} GB in {folder}, and {free / 1e9:.2g} GB are free")
