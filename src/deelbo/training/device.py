"""Where to compute, and in which precision: accelerate's choice, or the CPU."""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True)
class Execution:
    """Where and how a run is computed; none of it changes what is computed, beyond rounding.

    Args:
        device: "cpu" to stay off the GPU; accelerate's choice if None.
        precision: "no", "fp16" or "bf16", for autocast.
        log: Name of a tracker of accelerate's, such as "tensorboard", which writes into the run's folder.
        checkpoint_seconds: Seconds between two checkpoints, from which an interrupted run continues.
    """

    device: str | None = None
    precision: str = "no"
    log: str | None = None
    checkpoint_seconds: float = 60.0

    def accelerator(self, folder: Path | None) -> Any:
        """Return accelerate's `Accelerator`.

        Args:
            folder: Folder of the run, for the tracker.

        Raises:
            ValueError: If there is no such device or precision, or a tracker has no folder.
        """
        accelerate = require("accelerate", "training")
        check_precision(self.precision)
        if self.device is not None:
            check_device(self.device)
        if self.log is not None and folder is None:
            raise ValueError(f"log={self.log!r} needs a folder: out=...")
        options = {
            "cpu": self.device == "cpu",
            "mixed_precision": self.precision,
            "log_with": self.log,
            "project_dir": folder,
        }
        try:
            accelerator = accelerate.Accelerator(**options)
        except ValueError as error:
            if "already been initialized" not in str(error):
                raise
            accelerate.state.AcceleratorState._reset_state()  # an earlier call of this process had another precision
            accelerator = accelerate.Accelerator(**options)
        if self.precision == "fp16" and accelerator.device.type == "cpu":
            raise ValueError("precision='fp16' needs a GPU; on a CPU there is bf16")
        return accelerator
