"""Results of single training runs, each in a file named by the hash of its settings.

KEY.json            the record of a finished run, written in one instant
locks/KEY           file that the process which makes the run has locked
work/KEY/           checkpoints of a run, until it is finished
proposals/KEY.json  next point of a Bayesian optimisation, by the hash of the points and results before it
journal.jsonl       a line for the beginning and for the end of each run
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import filelock

from deelbo._files import read_json, write_json

Record = dict[str, Any]


class Records:
    """A folder of records, shared by any number of processes and comparisons.

    Args:
        folder: Path of the folder; it is made when it is first written to.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, key: str) -> Record | None:
        """Return a record, if there is one.

        Raises:
            ValueError: If its file is damaged.
        """
        path = self.folder / f"{key}.json"
        try:
            record = read_json(path)
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise ValueError(f"{error}; delete it, and the run is made again") from error
        if not isinstance(record, dict) or record.get("key") != key:
            raise ValueError(f"{path} is no record of this name; delete it, and the run is made again")
        return record

    def put(self, key: str, record: Record) -> None:
        """Write the record of a finished run, and delete its checkpoints."""
        write_json(self.folder / f"{key}.json", record)
        shutil.rmtree(self.work(key), ignore_errors=True)

    def work(self, key: str) -> Path:
        """Return the folder of a run's checkpoints."""
        return self.folder / "work" / key

    def tidy(self) -> None:
        """Delete the checkpoints of finished runs, which a process leaves if it dies before it can delete them."""
        for work in (self.folder / "work").glob("*"):
            if (self.folder / "locks" / work.name).exists() and (self.folder / f"{work.name}.json").exists():
                shutil.rmtree(work, ignore_errors=True)

    @contextmanager
    def claim(self, key: str) -> Iterator[bool]:
        """Lock a run inside the block; yields False if another process has locked it. A lock ends with its process."""
        # The lock's file is never deleted, because another process may have locked it by then.
        path = self.folder / "locks" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(path)
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            yield False
            return
        try:
            yield True
        finally:
            lock.release()

    def note(self, key: str, event: str) -> None:
        """Write a line about a run into the journal."""
        place = {"host": socket.gethostname(), "process": os.getpid()}
        line = {"time": time.time(), **place, "event": event, "key": key}
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "journal.jsonl").open("a") as file:  # short lines are appended in one piece
            file.write(json.dumps(line) + "\n")

    def proposal(self, key: str) -> Any:
        """Return the point that was proposed under this key, if there is one."""
        path = self.folder / "proposals" / f"{key}.json"
        return read_json(path) if path.is_file() else None

    def keep_proposal(self, key: str, value: Any) -> None:
        """Store a proposed point, so that an interrupted search continues with the same one."""
        write_json(self.folder / "proposals" / f"{key}.json", value)


class HasKey(Protocol):
    """A training run that has a record under a key."""

    @property
    def key(self) -> str:
        """Name of the record."""


class KnownRecords:
    """The records of finished runs; the file of each is read once.

    Args:
        records: The folder of records.
    """

    def __init__(self, records: Records) -> None:
        self.records = records
        self._read: dict[str, Record] = {}

    def __call__(self, trial: HasKey) -> Record | None:
        """Return the record of a run, if it is finished."""
        if trial.key not in self._read:
            record = self.records.get(trial.key)
            if record is None:
                return None
            self._read[trial.key] = record
        return self._read[trial.key]
