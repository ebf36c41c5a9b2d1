"""Atomic writing of files (to a temporary file that is then renamed), and locks on files and folders."""

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
        path: Path of the file; an existing file is replaced in one instant.
        tensors: Tensors by name.
        notes: Further plain values that belong to them, such as the step.
    """
    metadata = {"notes": json.dumps(notes)} if notes is not None else None
    unshared, addresses = {}, set()
    for name, tensor in tensors.items():
        copy = tensor.detach().cpu().contiguous()
        if copy.data_ptr() in addresses or copy.untyped_storage().nbytes() != copy.nbytes:
            copy = copy.clone()  # safetensors refuses tensors that share memory
        addresses.add(copy.data_ptr())
        unshared[name] = copy
    _replace(path, lambda temporary: safetensors.torch.save_file(unshared, temporary, metadata))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], Any]:
    """Return the tensors and the notes of a file that `write_tensors` wrote.

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
    content = text.encode(errors="replace")  # a file name in the text need not be valid Unicode
    _replace(path, lambda temporary: temporary.write_bytes(content))


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
    """Lock a folder or file against other processes inside the block; the lock ends when this process dies.

    Raises:
        FileExistsError: If another process holds the lock.
    """
    filelock = require("filelock", "training")
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    lock_file = path.parent / f".{path.name}.lock"
    lock = filelock.FileLock(lock_file)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise FileExistsError(f"another process is at work on {path}") from None
    try:
        yield
    finally:
        lock_file.unlink(missing_ok=True)  # before the release, so that no other process has locked it yet
        lock.release()


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        temporary.touch()
        mode = temporary.stat().st_mode
        write(temporary)
        temporary.chmod(mode)  # safetensors makes files that other users cannot read
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error  # the user does not know the temporary file
    finally:
        temporary.unlink(missing_ok=True)
