"""The loop of a comparison: ask every method what it wants, have it run, until nothing is wanted."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from deelbo.compare.engines import Engine
from deelbo.compare.engines.base import BUSY, FAILED
from deelbo.compare.records import Record, Records
from deelbo.compare.running import held_out_number, read_data
from deelbo.compare.strategies import Plan, Strategy, make_strategies
from deelbo.compare.task import Options, Task, Trial
from deelbo.data import Data, split
from deelbo.job import Job
from deelbo.swag.source import fingerprint
from deelbo.training.settings import Settings

POLL = 2.0  # seconds between looks at runs of other processes

Report = Callable[[dict[str, Any]], None]


class FailedRunsError(RuntimeError):
    """Some runs of a comparison failed."""


class Known:
    """The records that are known; each file is read once."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self._found: dict[str, Record] = {}

    def __call__(self, trial: Trial) -> Record | None:
        """Return the record of a run, if it is finished."""
        if trial.key not in self._found:
            record = self.records.get(trial.key)
            if record is None:
                return None
            self._found[trial.key] = record
        return self._found[trial.key]


@dataclass
class Entry:
    """One method on one task.

    Args:
        task: What is to be solved.
        strategy: The method.
        done: The results that are known.
    """

    task: Task
    strategy: Strategy
    done: Known
    _plan: Plan | None = None
    _missing: list[Trial] = field(default_factory=list)

    def plan(self) -> Plan:
        """Return what the method wants; thought over only when one of its missing runs is there."""
        if self._plan is None or any(self.done(trial) is not None for trial in self._missing):
            self._plan = self.strategy.plan(self.task, self.done)
            self._missing = [trial for trial in self._plan.trials if self.done(trial) is None]
        return self._plan

    def records(self) -> list[Record]:
        """Return the finished runs."""
        return [record for trial in self.plan().trials if (record := self.done(trial)) is not None]

    def finished(self) -> bool:
        """Tell whether the method has its answer."""
        finals = self.plan().finals
        return bool(finals) and all(self.done(final) is not None for final in finals)


def make_tasks(
    job: Job,
    options: Options,
    *,
    models: Sequence[str] = (),
    priors: Sequence[str] = ("l2-sp",),
    train_sizes: Sequence[int | None] = (None,),
    seeds: Sequence[int] = (0,),
    test_size: int | None = None,
    precision: str = "no",
) -> list[Task]:
    """Return models x priors x training sizes x seeds, after reading the data.

    Args:
        job: The data, and the model if `models` is empty.
        options: How much the methods may spend.
        models: Names of models.
        priors: As in `Settings`.
        train_sizes: Sizes of training subsets by class; None for everything.
        seeds: One training subset for each.
        test_size: Test examples to use; None for all.
        precision: Of autocast.

    Raises:
        ValueError: If there is no test set, a subset is too large or too small, or a setting is wrong.
    """
    data = read_data(job, test_size)
    assert data.test is not None
    content = data.fingerprint() + Data(data.kind, data.classes, data.test).fingerprint()
    tasks = []
    for model in models or [job.model]:
        for prior in priors:
            files = [job.weights, Settings(prior=prior).source]
            weights = "+".join(fingerprint(file) for file in files if file is not None)
            for size in train_sizes:
                for seed in seeds:
                    train = split(data, size, None, seed).train
                    searches = any(name in ("map-grid", "map-bo", "la-clml") for name in options.methods)
                    held = held_out_number(train.labels) if searches else 0
                    own = replace(job, model=model, train_size=size)
                    tasks.append(
                        Task(own, content, weights, prior, seed, len(train), held, options, test_size, precision)
                    )
    return tasks


class Comparison:
    """Methods on tasks, as far as their runs are known.

    Args:
        tasks: What is to be solved; all have the same options.
        records: Where results are.

    Raises:
        ValueError: If a method is unknown, or does not know a task's prior.
    """

    def __init__(self, tasks: Sequence[Task], records: Records) -> None:
        self.done = Known(records)
        pairs = [(task, strategy) for task in tasks for strategy in make_strategies(task.options)]
        self.entries = [Entry(task, strategy, self.done) for task, strategy in pairs]
        for entry in self.entries:
            entry.plan()  # what it refuses, it refuses now

    def wanted(self) -> list[Trial]:
        """Return the runs that are wanted now and not finished, each once."""
        trials = {trial.key: trial for entry in self.entries for trial in entry.plan().trials}
        return [trial for trial in trials.values() if self.done(trial) is None]

    def seconds_left(self, running: Mapping[str, float], slots: int) -> float | None:
        """Estimate the time for what is left, from the mean cost of each method's runs so far.

        Args:
            running: How far the present runs are.
            slots: Runs at a time.
        """
        costs = [
            (entry.plan().expected, [sum(record["seconds"].values()) for record in entry.records()])
            for entry in self.entries
        ]
        every = [cost for _, known in costs for cost in known]
        if not every:
            return None
        mean = sum(every) / len(every)
        total = sum((all_ - len(known)) * (sum(known) / len(known) if known else mean) for all_, known in costs)
        return max(0.0, total - mean * sum(running.values())) / slots

    def counts(self) -> tuple[int, int]:
        """Return how many runs are finished, and how many there will be; shared ones count once for each method."""
        return sum(len(e.records()) for e in self.entries), sum(e.plan().expected for e in self.entries)


def compare(comparison: Comparison, engine: Engine, report: Report = lambda event: None) -> None:
    """Have all runs made that the comparison lacks.

    Args:
        comparison: What is wanted.
        engine: Where runs are made; it is closed in the end.
        report: Called with {"comparison", "running", "left"} again and again, and {"note": text}.

    Raises:
        FailedRunsError: If runs failed; all others are finished then, unless the first one failed.
    """
    running: dict[str, Trial] = {}
    failed: dict[str, str] = {}
    waiting: dict[str, float] = {}  # runs of other processes, and when to look again
    succeeded = False
    try:
        while True:
            now = time.monotonic()
            wanted = [t for t in comparison.wanted() if t.key not in failed and t.key not in running]
            ready = [trial for trial in wanted if waiting.get(trial.key, 0) <= now]
            for trial in ready[: engine.slots - len(running)]:
                engine.submit(trial)
                running[trial.key] = trial
            if not wanted and not running:
                break
            progress = engine.progress()
            report({"comparison": comparison, "running": {running[k].describe(): progress.get(k) for k in running},
                    "left": comparison.seconds_left(progress, engine.slots)})  # fmt: skip
            if not running:
                time.sleep(POLL)  # all that is left is being made by others
            for outcome in engine.wait(1.0):
                trial = running.pop(outcome.key)
                if outcome.status == BUSY:
                    waiting[outcome.key] = time.monotonic() + POLL
                elif outcome.status == FAILED:
                    failed[outcome.key] = outcome.message
                    report({"note": f"failed: {trial.describe()}: {outcome.message}"})
                    if not succeeded and len(failed) >= engine.slots:
                        raise FailedRunsError(f"the first runs failed: {outcome.message}")
                else:
                    succeeded = True
    finally:
        engine.close()
    report({"comparison": comparison, "running": {}, "left": 0.0})
    if failed:
        raise FailedRunsError(
            f"{len(failed)} runs failed and are tried again by the next call: {next(iter(failed.values()))}"
        )
