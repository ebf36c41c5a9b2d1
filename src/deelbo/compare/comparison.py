"""The loop of a comparison: ask every method which runs it needs and make them, until none is missing."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from deelbo import events
from deelbo.compare.engines import Engine
from deelbo.compare.engines.base import BUSY, FAILED
from deelbo.compare.problem import Options, Problem, Trial
from deelbo.compare.records import KnownRecords, Record, Records
from deelbo.compare.running import data_fingerprint, held_out_number, inspect_model, read_data
from deelbo.compare.strategies import Plan, Strategy, make_strategies
from deelbo.data import split
from deelbo.errors import FailedRunsError
from deelbo.priors import make_recipe
from deelbo.specs import DataSpec, ModelSpec

POLL = 2.0  # seconds between two checks of runs that other processes make
HOPELESS = 3  # if so many runs fail before one succeeds, the rest is not tried


@dataclass
class Entry:
    """One method on one problem.

    Args:
        problem: The problem that the method solves.
        strategy: The method.
        known: The records of finished runs.
    """

    problem: Problem
    strategy: Strategy
    known: KnownRecords
    _plan: Plan | None = None
    _missing: list[Trial] = field(default_factory=list)

    def plan(self) -> Plan:
        """Return the method's plan, which is made anew only when one of its missing runs is finished."""
        if self._plan is None or any(self.known(trial) is not None for trial in self._missing):
            self._plan = self.strategy.plan(self.problem, self.known)
            self._missing = [trial for trial in self._plan.everything if self.known(trial) is None]
        return self._plan

    def records(self) -> list[Record]:
        """Return the records of the method's finished runs."""
        return [record for trial in self.plan().trials if (record := self.known(trial)) is not None]

    def finished(self) -> bool:
        """Tell whether the final runs of the method are known and finished."""
        finals = self.plan().finals
        return bool(finals) and all(self.known(final) is not None for final in finals)


def make_problems(
    data_spec: DataSpec,
    model_specs: Sequence[ModelSpec],
    options: Options,
    *,
    priors: Sequence[str] = ("l2-sp",),
    train_sizes: Sequence[int | None] = (None,),
    per_class: Sequence[int] = (),
    seeds: Sequence[int] = (0,),
    test_size: int | None = None,
    precision: str = "no",
) -> list[Problem]:
    """Return a problem for each combination of model, prior, training size and seed, after reading the data.

    Args:
        data_spec: Specification of the data.
        model_specs: Specifications of the models.
        options: Settings of the methods.
        priors: Names of priors, as in `Settings`.
        train_sizes: Sizes of training subsets, which keep the proportions of classes; None for the whole training set.
        per_class: Numbers of training examples of each class, for further subsets; instead of the whole training set if
            no `train_sizes` are given.
        seeds: Seeds; each chooses a training subset and is the seed of its runs.
        test_size: Number of test examples to use; None for all.
        precision: Precision of autocast: "no", "fp16" or "bf16".

    Raises:
        ValueError: If there is no test set, a subset is too large or too small, or a setting is wrong.
    """
    sizes = () if per_class and tuple(train_sizes) == (None,) else train_sizes
    subsets = [*((size, None) for size in sizes), *((None, each) for each in per_class)]
    choices = {"priors": priors, "train_sizes": train_sizes, "per_class": per_class, "seeds": seeds}
    for name, values in {"models": [spec.model for spec in model_specs], **choices}.items():
        if len(set(values)) != len(values):
            raise ValueError(f"{name}={','.join(str(value) for value in values)} has a value twice")
    read_data.cache_clear()  # files may have changed since an earlier call
    inspect_model.cache_clear()
    data = read_data(data_spec, test_size)
    content = data_fingerprint(data)
    searches = any(strategy.searches for strategy in make_strategies(options))
    problems = []
    for model_spec, prior in itertools.product(model_specs, priors):
        inspected, fingerprint = inspect_model(model_spec, data_spec, test_size)
        recipe = make_recipe(prior)
        recipe.make(inspected, model_spec.head)  # so that a bad prior or head is refused before any run
        for (size, each), seed in itertools.product(subsets, seeds):
            train = split(data, size, None, seed, each).train
            strata, whole = data.targets.strata(train.labels), len(train) == len(data.train)
            problem = Problem(
                data_spec=replace(data_spec, train_size=None if whole else size, per_class=None if whole else each),
                model_spec=model_spec,
                data=content,
                network=fingerprint + (recipe.fingerprint() or ""),
                prior=prior,
                seed=seed,
                number=len(train),
                held_out=held_out_number(strata) if searches else 0,
                options=options,
                test_size=test_size,
                precision=precision,
            )
            if searches:
                assert problem.search_axes
            problems.append(problem)
    return problems


class Comparison:
    """All methods on all problems, with the runs that are known so far.

    Args:
        problems: The problems that every method solves.
        records: Records of single runs.
    """

    def __init__(self, problems: Sequence[Problem], records: Records) -> None:
        self.known = KnownRecords(records)
        pairs = [(problem, strategy) for problem in problems for strategy in make_strategies(problem.options)]
        self.entries = [Entry(problem, strategy, self.known) for problem, strategy in pairs]

    def wanted(self) -> list[Trial]:
        """Return the runs that are needed now and not finished, each once.

        The methods take turns, so that one which needs its runs one after the other does not wait for all grids.
        """
        missing = [[trial for trial in entry.plan().everything if self.known(trial) is None] for entry in self.entries]
        turns = (trial for turn in itertools.zip_longest(*missing) for trial in turn if trial is not None)
        return list({trial.key: trial for trial in turns}.values())

    def seconds_left(self, running: Mapping[str, float], slots: int) -> float | None:
        """Estimate the time for what is left, from the mean cost of each method's runs so far.

        Args:
            running: Finished fraction of each present run, by key.
            slots: Number of runs at a time.
        """
        all_costs = [sum(record["seconds"].values()) for entry in self.entries for record in entry.records()]
        if not all_costs:
            return None
        mean, total = sum(all_costs) / len(all_costs), 0.0
        seen: set[str] = set()
        for entry in self.entries:
            plan, costs = entry.plan(), [sum(record["seconds"].values()) for record in entry.records()]
            missing = {trial.key for trial in plan.everything if self.known(trial) is None} - seen
            seen |= missing
            number = len(missing) + plan.expected - len(plan.everything)
            total += number * (sum(costs) / len(costs) if costs else mean)
        return max(0.0, total - mean * sum(running.values())) / slots

    def counts(self) -> tuple[int, int]:
        """Return how many runs are finished, and how many there will be; a run that methods share counts once."""
        planned = {trial.key: trial for entry in self.entries for trial in entry.plan().everything}
        unknown = sum(entry.plan().expected - len(entry.plan().everything) for entry in self.entries)
        return sum(self.known(trial) is not None for trial in planned.values()), len(planned) + unknown


def compare(comparison: Comparison, engine: Engine, listener: events.Listener = events.ignore) -> None:
    """Make all runs that the comparison lacks.

    Args:
        comparison: The comparison, which knows its missing runs.
        engine: Engine that makes the runs; it is closed in the end.
        listener: Called with a `ComparisonState` again and again, and with notes.

    Raises:
        FailedRunsError: If runs failed, after all others are finished; at once if the first few runs failed.
    """
    running: dict[str, Trial] = {}
    failed: dict[str, str] = {}
    waiting: dict[str, float] = {}  # runs that other processes make, and when to check again
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
            seconds_left = comparison.seconds_left(progress, engine.slots)
            listener(events.ComparisonState(comparison, now_running, seconds_left))
            if not running:
                time.sleep(POLL)  # other processes make all that is left
            for outcome in engine.wait(1.0):
                trial = running.pop(outcome.key)
                if outcome.status == BUSY:
                    waiting[outcome.key] = time.monotonic() + POLL
                elif outcome.status == FAILED:
                    failed[outcome.key] = outcome.message
                    listener(events.Note(f"failed: {trial.describe()}: {outcome.message}"))
                    if not succeeded and len(failed) == HOPELESS:
                        raise FailedRunsError(f"the first {HOPELESS} runs failed: {outcome.message}")
                else:
                    succeeded = True
    finally:
        engine.close()
    listener(events.ComparisonState(comparison, [], 0.0))
    if failed:
        raise FailedRunsError(
            f"{len(failed)} runs failed and are tried again by the next call: {next(iter(failed.values()))}"
        )
