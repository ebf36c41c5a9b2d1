"""Device, precision and tracker of a run, through the library accelerate."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from deelbo._extras import require
from deelbo._processes import launched_together


def default_device() -> str:
    """Return the kind of device that accelerate chooses here."""
    return "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"


def check_device(device: str) -> None:
    """Raise an error unless the device is the default one or the CPU.

    Raises:
        ValueError: If it is another device; the message says which there are.
    """
    devices = dict.fromkeys((default_device(), "cpu"))
    if device not in devices:
        hint = "; the variable CUDA_VISIBLE_DEVICES chooses a GPU" if device.startswith("cuda") else ""
        raise ValueError(f"device={device!r}, but there is {' and '.join(devices)}{hint}")


def check_precision(precision: str) -> None:
    """Raise an error unless the precision is one of autocast's.

    Raises:
        ValueError: If the precision is unknown.
    """
    if precision not in ("no", "fp16", "bf16"):
        raise ValueError(f"precision={precision!r}, but it is no, fp16 or bf16")


@dataclass(frozen=True)
class Execution:
    """Device, precision, tracker and checkpoints of a run; they change its result by rounding at most.

    Args:
        device: "cpu" to stay off the GPU; accelerate's choice if None.
        precision: "no", "fp16" or "bf16", for autocast.
        log: Name of one of accelerate's trackers, such as "tensorboard", which writes into the run's folder.
        checkpoint_seconds: Seconds between two checkpoints, from which an interrupted run continues.
        workers: Number of processes that read training examples, 0 for none; None to start some if steps wait for data.

    Raises:
        ValueError: If the number of workers is negative.
    """

    device: str | None = None
    precision: str = "no"
    log: str | None = None
    checkpoint_seconds: float = 60.0
    workers: int | None = None

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 0:
            raise ValueError(f"workers={self.workers}, but it is a number of processes, and 0 for none")

    def join(self) -> None:
        """Meet the other processes, if a launcher such as torchrun has started several."""
        if launched_together():
            self.accelerator(None)

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
            accelerate.state.AcceleratorState._reset_state()  # an earlier call in this process used another precision
            accelerator = accelerate.Accelerator(**options)
        if self.precision == "fp16" and accelerator.device.type == "cpu":
            raise ValueError("precision='fp16' needs a GPU; on a CPU there is bf16")
        return accelerator
