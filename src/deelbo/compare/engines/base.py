"""What an engine does, and what its workers do with a run."""

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
RETRIES = 3  # of a run whose worker was lost


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Args:
        key: Key of the trial.
        status: "done", "busy" (another process is at work on it) or "failed".
        message: Why it failed.
    """

    key: str
    status: str
    message: str = ""


ENGINES: Registry[Callable[..., Engine]] = Registry("engine", "deelbo.compare.engines")


class Engine(Protocol):
    """Runs trials, several at a time, and keeps their records."""

    slots: int

    def submit(self, trial: Trial) -> None:
        """Begin a run; at most `slots` at a time."""

    def wait(self, seconds: float) -> list[Outcome]:
        """Return the runs that have ended, after some time at the latest."""

    def progress(self) -> dict[str, float]:
        """Return how far the present runs are, from 0 to 1, where that is known."""

    def close(self) -> None:
        """Stop; runs that are cut off leave checkpoints."""


def attempt(trial: Trial, folder: Path, device: str | None, listener: events.Listener = events.ignore) -> Outcome:
    """Make a run and keep its record, unless another process does or has done so.

    Args:
        trial: The run.
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
