"""The protocol of engines, and the function by which their workers make a run."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from deelbo import events
from deelbo._registry import Registry
from deelbo.compare.problem import Trial
from deelbo.compare.records import Records
from deelbo.compare.running import run_trial

DONE, BUSY, FAILED = "done", "busy", "failed"
RETRIES = 3  # how often a run is tried again after its worker died


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Args:
        key: Key of the run.
        status: "done", "busy" (another process makes this run) or "failed".
        message: Reason of a failure.
    """

    key: str
    status: str
    message: str = ""


ENGINES: Registry[Callable[..., Engine]] = Registry("engine", "deelbo.compare.engines")


class Engine(Protocol):
    """Runs trials, several at a time, and keeps their records."""

    slots: int

    def submit(self, trial: Trial) -> None:
        """Start a run; at most `slots` at a time."""

    def wait(self, seconds: float) -> list[Outcome]:
        """Return the runs that have ended, after so many seconds at the latest."""

    def progress(self) -> dict[str, float]:
        """Return the finished fraction of each present run by key, if it is known."""

    def close(self) -> None:
        """Stop; unfinished runs leave checkpoints."""


def attempt(trial: Trial, folder: Path, device: str | None, listener: events.Listener = events.ignore) -> Outcome:
    """Make a run and store its record, unless another process does so or has done so.

    Args:
        trial: The run to make.
        folder: Folder of the records.
        device: "cpu" to stay off the GPU; accelerate's choice if None.
        listener: Called with the events of the search.
    """
    records = Records(folder)
    try:
        with records.claim(trial.key) as mine:
            if not mine:
                return Outcome(trial.key, BUSY)
            if records.get(trial.key) is None:
                records.note(trial.key, "begun")
                record = run_trial(trial, records, device, listener)
                records.put(trial.key, {**record, "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())})
                records.note(trial.key, "ended")
    except Exception as error:
        traceback.print_exc()
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return Outcome(trial.key, FAILED, f"{type(error).__name__}: {'; '.join(lines[:3])}")
    return Outcome(trial.key, DONE)
