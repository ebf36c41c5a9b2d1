"""The loop of a comparison: ask every method what it wants, have it run, until nothing is wanted."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from deelbo.compare.engines import Engine
from deelbo.compare.engines.base import BUSY, FAILED
from deelbo.compare.records import Record, Records
from deelbo.compare.running import data_fingerprint, held_out_number, inspect_model, read_data
from deelbo.compare.strategies import Plan, Strategy, make_strategies
from deelbo.compare.task import Options, Task, Trial
from deelbo.data import split
from deelbo.job import Job, Report
from deelbo.methods import make_prior
from deelbo.swag.source import fingerprint
from deelbo.training.settings import Settings

POLL = 2.0  # seconds between looks at runs of other processes
HOPELESS = 3  # failures at the beginning after which the rest is not tried


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
    for name, values in (("models", models), ("priors", priors), ("train_sizes", train_sizes), ("seeds", seeds)):
        if len(set(values)) != len(values):
            raise ValueError(f"{name} has a value twice: {', '.join(str(value) for value in values)}")
    read_data.cache_clear()  # files may have changed since
    inspect_model.cache_clear()
    data = read_data(job, test_size)
    content = data_fingerprint(data)
    searches = any(strategy.searches for strategy in make_strategies(options))
    tasks = []
    for model, prior in itertools.product(models or [job.model], priors):
        own = replace(job, model=model)
        loaded, network = inspect_model(own, test_size)
        settings = Settings(prior=prior)
        make_prior(settings, loaded.network, job.head)  # what it refuses, it refuses now
        if settings.source is not None:
            network += fingerprint(settings.source)
        for size, seed in itertools.product(train_sizes, seeds):
            train = split(data, size, None, seed).train
            held = held_out_number(train.labels) if searches else 0
            own = replace(own, train_size=None if size == len(data.train) else size)
            tasks.append(Task(own, content, network, prior, seed, len(train), held, options, test_size, precision))
            if searches:
                assert tasks[-1].groups
    return tasks


class Comparison:
    """Methods on tasks, as far as their runs are known.

    Args:
        tasks: What is to be solved.
        records: Where results are.
    """

    def __init__(self, tasks: Sequence[Task], records: Records) -> None:
        self.done = Known(records)
        pairs = [(task, strategy) for task in tasks for strategy in make_strategies(task.options)]
        self.entries = [Entry(task, strategy, self.done) for task, strategy in pairs]

    def wanted(self) -> list[Trial]:
        """Return the runs that are wanted now and not finished, each once.

        The methods take turns: one that can only go step by step must not wait until the grids are through.
        """
        missing = [[trial for trial in entry.plan().trials if self.done(trial) is None] for entry in self.entries]
        turns = (trial for turn in itertools.zip_longest(*missing) for trial in turn if trial is not None)
        return list({trial.key: trial for trial in turns}.values())

    def seconds_left(self, running: Mapping[str, float], slots: int) -> float | None:
        """Estimate the time for what is left, from the mean cost of each method's runs so far.

        Args:
            running: How far the present runs are.
            slots: Runs at a time.
        """
        every = [sum(record["seconds"].values()) for entry in self.entries for record in entry.records()]
        if not every:
            return None
        mean, total = sum(every) / len(every), 0.0
        seen: set[str] = set()
        for entry in self.entries:
            plan, known = entry.plan(), [sum(record["seconds"].values()) for record in entry.records()]
            missing = {trial.key for trial in plan.trials if self.done(trial) is None} - seen
            seen |= missing
            number = len(missing) + plan.expected - len(plan.trials)
            total += number * (sum(known) / len(known) if known else mean)
        return max(0.0, total - mean * sum(running.values())) / slots

    def counts(self) -> tuple[int, int]:
        """Return how many runs are finished, and how many there will be; what methods share counts once."""
        known = {trial.key: trial for entry in self.entries for trial in entry.plan().trials}
        unknown = sum(entry.plan().expected - len(entry.plan().trials) for entry in self.entries)
        return sum(self.done(trial) is not None for trial in known.values()), len(known) + unknown


def compare(comparison: Comparison, engine: Engine, report: Report = lambda event: None) -> None:
    """Have all runs made that the comparison lacks.

    Args:
        comparison: What is wanted.
        engine: Where runs are made; it is closed in the end.
        report: Called with {"comparison", "running", "left"} again and again, and {"note": text}.

    Raises:
        FailedRunsError: If runs failed; all others are finished then, unless the first few failed.
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
            now_running = [(trial.describe(), progress.get(key)) for key, trial in running.items()]
            left = comparison.seconds_left(progress, engine.slots)
            report({"comparison": comparison, "running": now_running, "left": left})
            if not running:
                time.sleep(POLL)  # all that is left is being made by others
            for outcome in engine.wait(1.0):
                trial = running.pop(outcome.key)
                if outcome.status == BUSY:
                    waiting[outcome.key] = time.monotonic() + POLL
                elif outcome.status == FAILED:
                    failed[outcome.key] = outcome.message
                    report({"note": f"failed: {trial.describe()}: {outcome.message}"})
                    if not succeeded and len(failed) == HOPELESS:
                        raise FailedRunsError(f"the first {HOPELESS} runs failed: {outcome.message}")
                else:
                    succeeded = True
    finally:
        engine.close()
    report({"comparison": comparison, "running": [], "left": 0.0})
    if failed:
        raise FailedRunsError(
            f"{len(failed)} runs failed and are tried again by the next call: {next(iter(failed.values()))}"
        )
