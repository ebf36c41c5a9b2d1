"""Where to compute, and in which precision: accelerate's choice, or the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from deelbo._extras import require


def default_device() -> str:
    """Return the kind of device that accelerate chooses here."""
    return "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"


def check_device(device: str) -> None:
    """Refuse what is neither the default nor the CPU.

    Raises:
        ValueError: If it is neither; the message says which there are.
    """
    there = dict.fromkeys((default_device(), "cpu"))
    if device not in there:
        hint = "; which GPU, CUDA_VISIBLE_DEVICES says" if device.startswith("cuda") else ""
        raise ValueError(f"device={device!r}, but there is {' and '.join(there)}{hint}")


def check_precision(precision: str) -> None:
    """Refuse what is no kind of autocast.

    Raises:
        ValueError: If it is none.
    """
    if precision not in ("no", "fp16", "bf16"):
        raise ValueError(f"precision={precision!r}, but it is no, fp16 or bf16")


def make_accelerator(device: str | None, precision: str, log: str | None, folder: Path | None) -> Any:
    """Return accelerate's `Accelerator`; see `finetune` for the arguments.

    Raises:
        ValueError: If there is no such device or precision.
    """
    accelerate = require("accelerate", "training")
    check_precision(precision)
    if device is not None:
        check_device(device)
    options = {"cpu": device == "cpu", "mixed_precision": precision, "log_with": log, "project_dir": folder}
    try:
        accelerator = accelerate.Accelerator(**options)
    except ValueError as error:
        if "already been initialized" not in str(error):
            raise
        accelerate.state.AcceleratorState._reset_state()  # an earlier call of this process had another precision
        accelerator = accelerate.Accelerator(**options)
    if precision == "fp16" and accelerator.device.type == "cpu":
        raise ValueError("precision fp16 needs a GPU; on a CPU there is bf16")
    return accelerator
