"""What a method in a comparison is: a plan made of training runs, as far as their results are known."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch

from deelbo.compare.records import Record, Records
from deelbo.compare.task import Options, Task, Trial

SUBSETS = 500  # random subsets of a grid, for each size (the paper's)


class Done(Protocol):
    """The results that are known."""

    records: Records

    def __call__(self, trial: Trial) -> Record | None:
        """Return the record of a run, if it is finished."""


@dataclass(frozen=True)
class Plan:
    """What a method wants, given the results so far.

    Args:
        trials: All runs that it knows it needs, finished or not.
        finals: The runs whose classifiers are its answer, one for each repetition; empty until they are known.
        chosen: The runs that were chosen, one for each final; the same, if nothing is trained again.
        expected: How many runs there will be in all.
    """

    trials: list[Trial]
    finals: list[Trial]
    chosen: list[Trial]
    expected: int


@dataclass(frozen=True)
class Curve:
    """Test accuracy over time, as the search goes on.

    Args:
        points: (seconds, accuracy, low, high): what is reached when the search stops there, and how that varies.
        finals: (seconds, accuracy) of the answers.
    """

    points: list[tuple[float, float, float, float]] = field(default_factory=list)
    finals: list[tuple[float, float]] = field(default_factory=list)


class Strategy(Protocol):
    """A method; a pure function of the results, so that it can be interrupted anywhere.

    Args:
        name: Under which it is registered.
        kappa: Of DE-ELBO; None for D/N, and for all other methods.
        searches: Whether it holds a fifth of the training set out to search for strengths.
    """

    name: str
    kappa: float | None
    searches: bool

    def plan(self, task: Task, done: Done) -> Plan:
        """Say which runs are wanted."""

    def score(self, record: Record) -> float:
        """Return by what the method chooses, larger being better; -inf for a run that diverged."""

    def seconds(self, record: Record) -> float:
        """Return what a run cost the method."""

    def curve(self, task: Task, done: Done) -> Curve:
        """Return the test accuracy over time of a finished plan."""


REGISTRY: dict[str, Callable[[Options], Sequence[Strategy]]] = {}


def register(name: str) -> Callable[[Callable[[Options], Sequence[Strategy]]], Callable[[Options], Sequence[Strategy]]]:
    """Make a method known under a name; what is registered makes its strategies from the options."""

    def keep(make: Callable[[Options], Sequence[Strategy]]) -> Callable[[Options], Sequence[Strategy]]:
        REGISTRY[name] = make
        return make

    return keep


def best(trials: Sequence[Trial], done: Done, score: Callable[[Record], float]) -> Trial | None:
    """Return the finished run with the best score, the first of equals; None if not all are finished."""
    found = [(trial, done(trial)) for trial in trials]
    if any(record is None for _, record in found):
        return None
    return max(found, key=lambda pair: score(pair[1]))[0]  # type: ignore[arg-type]


def accuracy(record: Record) -> float:
    """Return the paper's accuracy, the mean over classes; 0 for a run that diverged."""
    return record["test"]["balanced_accuracy"] if record["test"] else 0.0


def best_so_far(strategy: Strategy, trials: Sequence[Trial], done: Done) -> list[tuple[float, float]]:
    """Return, after each of some finished runs, the seconds so far and the test accuracy of the best one."""
    total, leader, path = 0.0, None, []
    for trial in trials:
        record = done(trial)
        assert record is not None
        total += strategy.seconds(record)
        leader = record if leader is None or strategy.score(record) > strategy.score(leader) else leader
        path.append((total, accuracy(leader)))
    return path


class ByObjective:
    """Methods without a validation set: candidates on all the data, chosen by the training objective.

    Args:
        name: Of the method, as `Settings` knows it.
        lr_search: "race" is one run that drops candidates early; "grid" a run for each.
        kappa: Of "de-elbo".
    """

    searches = False

    def __init__(self, name: str, lr_search: str, kappa: float | None = None) -> None:
        self.name, self.lr_search, self.kappa = name, lr_search, kappa

    def _trials(self, task: Task) -> list[Trial]:
        rates = task.options.learning_rates
        kappa = {} if self.kappa is None else {"kappa": self.kappa}
        if self.lr_search == "race":
            return [task.trial(method=self.name, learning_rates=rates, lr_search="race", **kappa)]
        return [task.trial(method=self.name, learning_rates=(rate,), lr_search="grid", **kappa) for rate in rates]

    def plan(self, task: Task, done: Done) -> Plan:
        """All candidates, and the best of them."""
        trials = self._trials(task)
        chosen = best(trials, done, self.score)
        finals = [] if chosen is None else [chosen]
        return Plan(trials, finals, finals, len(trials))

    def score(self, record: Record) -> float:
        """Return the training objective."""
        return -math.inf if record["objective"] is None else record["objective"]

    def seconds(self, record: Record) -> float:
        """Return the time of training, with the estimates of the objective."""
        return record["seconds"]["training"] + record["seconds"]["objective"]

    def curve(self, task: Task, done: Done) -> Curve:
        """Candidate after candidate."""
        path = best_so_far(self, self._trials(task), done)
        return Curve([(seconds, reached, reached, reached) for seconds, reached in path], [path[-1]])


class GridSearch(ABC):
    """MAP on four fifths for every cell of a grid, then once more on everything with the best one.

    The accuracies of the curve are those of the runs on four fifths, averaged over random subsets of the cells; the
    answer is the retrained one.
    """

    name = ""
    kappa: float | None = None
    searches = True

    def cells(self, task: Task) -> list[tuple[dict[str, float], float]]:
        """Return the grid: strengths and learning rate."""
        rates, groups = task.options.learning_rates, task.groups
        strengths = task.options.strengths
        if task.prior == "l2-zero":  # one strength for all
            return [(dict.fromkeys(groups, value), rate) for value in strengths for rate in rates]
        backbone = task.options.ptyl_variances if task.ptyl else strengths
        pairs = [dict(zip(groups, (a, b), strict=True)) for a in backbone for b in strengths]
        return [(pair, rate) for pair in pairs for rate in rates]

    @abstractmethod
    def trial(self, task: Task, cell: tuple[dict[str, float], float], done: Done) -> Trial:
        """Return the run of a cell."""

    def plan(self, task: Task, done: Done) -> Plan:
        """All cells, then the best one on everything."""
        cells = self.cells(task)
        trials = [self.trial(task, cell, done) for cell in cells]
        chosen = best(trials, done, self.score)
        if chosen is None:
            return Plan(trials, [], [], len(cells) + 1)
        final = task.point(*cells[trials.index(chosen)], whole=True)
        return Plan([*trials, final], [final], [chosen], len(cells) + 1)

    @abstractmethod
    def score(self, record: Record) -> float:
        """Return by what cells are compared."""

    def seconds(self, record: Record) -> float:
        """Return what a cell costs."""
        return record["seconds"]["training"] + record["seconds"]["validation"]

    def curve(self, task: Task, done: Done) -> Curve:
        """The best of n cells, averaged over 500 random subsets of that size."""
        plan = self.plan(task, done)
        records = [record for trial in plan.trials[:-1] if (record := done(trial)) is not None]
        final = done(plan.finals[0])
        assert final is not None
        total = sum(self.seconds(record) for record in records)
        points = subset_curve([self.score(r) for r in records], [accuracy(r) for r in records])
        each = total / len(records)
        return Curve(
            [((i + 1) * each, *point) for i, point in enumerate(points)],
            [(total + final["seconds"]["training"], accuracy(final))],
        )


def subset_curve(scores: Sequence[float], accuracies: Sequence[float]) -> list[tuple[float, float, float]]:
    """Return, for each n, the accuracy of the best of n cells by score: mean, 10th and 90th percentile.

    Over 500 random subsets of each size, the same ones every time: the first n cells of 500 random orders.
    """
    number = len(scores)
    by_score = sorted(range(number), key=lambda i: -scores[i])
    orders = torch.rand(SUBSETS, number, generator=torch.Generator().manual_seed(0)).argsort(1)  # of ranks by score
    best_rank = orders.cummin(1).values
    found = torch.tensor([accuracies[i] for i in by_score], dtype=torch.float64)[best_rank].sort(0).values
    return [(float(each.mean()), float(each[SUBSETS // 10]), float(each[-SUBSETS // 10])) for each in found.T]
