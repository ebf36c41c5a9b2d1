"""Files that a crash at any byte leaves whole: written beside, flushed, renamed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor


def write_tensors(path: Path, tensors: dict[str, Tensor], notes: dict[str, Any] | None = None) -> None:
    """Write tensors and JSON-able notes into one safetensors file.

    Args:
        path: Where to; an existing file is replaced in one instant.
        tensors: By name.
        notes: What belongs to them, such as the step.
    """
    metadata = {"notes": json.dumps(notes)} if notes is not None else None
    whole = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    _replace(path, safetensors.torch.save(whole, metadata))


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
    _replace(path, text.encode(errors="replace"))  # file names need not be valid text


def read_json(path: Path) -> Any:
    """Read JSON.

    Raises:
        ValueError: If the file is damaged.
    """
    try:
        return json.loads(path.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error


def _replace(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error  # the user knows no files beside
    finally:
        beside.unlink(missing_ok=True)
