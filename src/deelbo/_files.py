"""Files that a crash at any byte leaves whole (written beside, flushed, renamed), and locks on files and folders."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from deelbo._extras import require


def write_tensors(path: Path, tensors: dict[str, Tensor], notes: dict[str, Any] | None = None) -> None:
    """Write tensors and JSON-able notes into one safetensors file.

    Args:
        path: Where to; an existing file is replaced in one instant.
        tensors: By name.
        notes: What belongs to them, such as the step.
    """
    metadata = {"notes": json.dumps(notes)} if notes is not None else None
    whole, seen = {}, set()
    for name, tensor in tensors.items():
        own = tensor.detach().cpu().contiguous()
        if own.data_ptr() in seen or own.untyped_storage().nbytes() != own.nbytes:
            own = own.clone()  # safetensors refuses memory that is shared
        seen.add(own.data_ptr())
        whole[name] = own
    _replace(path, lambda beside: safetensors.torch.save_file(whole, beside, metadata))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], Any]:
    """Read what `write_tensors` wrote.

    Raises:
        ValueError: If the file is damaged.
    """
    try:
        with safetensors.safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
        return tensors, json.loads(metadata.get("notes", "null"))
    except (safetensors.SafetensorError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error


def write_json(path: Path, value: Any) -> None:
    """Write JSON; an existing file is replaced in one instant."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write text; an existing file is replaced in one instant."""
    content = text.encode(errors="replace")  # file names need not be valid text
    _replace(path, lambda beside: beside.write_bytes(content))


def read_json(path: Path) -> Any:
    """Read JSON.

    Raises:
        ValueError: If the file is damaged.
    """
    try:
        return json.loads(path.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error


def file_fingerprint(path: str | Path) -> str:
    """Return a hash of a file's content."""
    digest = hashlib.sha256()
    with Path(path).open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()[:16]


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


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        beside.touch()
        mode = beside.stat().st_mode
        write(beside)
        beside.chmod(mode)  # safetensors makes files that nobody else can read
        with beside.open("rb+") as file:
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error  # the user knows no files beside
    finally:
        beside.unlink(missing_ok=True)
