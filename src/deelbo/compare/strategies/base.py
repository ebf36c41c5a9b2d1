"""Strategies: methods in a comparison, which plan their training runs from the results known so far."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from deelbo._registry import Registry
from deelbo.compare.problem import Options, Problem, Trial
from deelbo.compare.records import KnownRecords, Record
from deelbo.metrics import main_metric

Cell = tuple[tuple[float, ...], float]  # a number for each axis of the prior, and a learning rate

SUBSETS = 500  # random subsets of a grid, for each size (the paper's)


@dataclass(frozen=True)
class Plan:
    """The runs that a method needs, given the results so far.

    Args:
        trials: All runs that are known to be needed, finished or not.
        finals: Runs whose networks are the method's result, one for each repetition; empty until they are known.
        chosen: Best runs of the search, one for each final run; the final runs themselves if nothing is trained again.
        expected: Number of runs that the method will need in all.
        again: Further runs, which only the chart of results over time needs: what the search could have chosen earlier,
            trained on the whole training set. They are not charged to the method.
    """

    trials: list[Trial]
    finals: list[Trial]
    chosen: list[Trial]
    expected: int
    again: list[Trial] = field(default_factory=list)

    @property
    def everything(self) -> list[Trial]:
        """All runs, those for the chart included, each once."""
        return list({trial.key: trial for trial in (*self.trials, *self.again)}.values())


@dataclass(frozen=True)
class Curve:
    """The main metric on the test set over the time of a search.

    Args:
        points: (seconds, value, low, high): value reached if the search stopped there, and its range.
        finals: (seconds, value) of the final runs.
        retrained: Whether the networks along the line were trained again on the whole training set, and the time for it
            counts, as in the paper; if not, they are those of the search, trained on four fifths. None for a method
            that holds nothing out.
    """

    points: list[tuple[float, float, float, float]] = field(default_factory=list)
    finals: list[tuple[float, float]] = field(default_factory=list)
    retrained: bool | None = None


class Strategy(Protocol):
    """A method in a comparison; a pure function of the known results, so that it can be interrupted anywhere.

    Attributes:
        name: Name under which the method is registered.
        kappa: Emphasis of the data of DE-ELBO; None for D/N, and for all other methods.
        searches: Whether the method holds out a fifth of the training set to search for strengths.
        role: "reference" for the method that the others are compared with, "rival", or "ablation" of the reference.
        colour: Number of the method's colour in the charts.
    """

    name: str
    kappa: float | None
    searches: bool
    role: str
    colour: int

    def plan(self, problem: Problem, known: KnownRecords) -> Plan:
        """Return the runs that are needed."""

    def score(self, record: Record) -> float:
        """Return the score by which the method chooses, larger being better; -inf for a run that diverged."""

    def seconds(self, record: Record) -> float:
        """Return the time that a run costs the method."""

    def curve(self, problem: Problem, known: KnownRecords) -> Curve:
        """Return the main metric on the test set over time of a finished plan."""


STRATEGIES: Registry[Callable[[Options], Sequence[Strategy]]] = Registry("methods", "deelbo.compare.strategies")


def best(trials: Sequence[Trial], known: KnownRecords, score: Callable[[Record], float]) -> Trial | None:
    """Return the run with the best score, the first of equals; None if not all runs are finished."""
    pairs = [(trial, known(trial)) for trial in trials]
    if any(record is None for _, record in pairs):
        return None
    return max(pairs, key=lambda pair: score(pair[1]))[0]  # type: ignore[arg-type]


def test_result(record: Record) -> float:
    """Return the main metric of a run on the test set; 0 (or NaN, if lower is better) if there is none."""
    metric = main_metric(record["trial"]["settings"]["likelihood"])
    value = (record["test"] or {}).get(metric.name)
    return value if value is not None else 0.0 if metric.better == "higher" else math.nan


def best_so_far(
    strategy: Strategy, trials: Sequence[Trial], known: KnownRecords, again: Mapping[int, Record] | None = None
) -> list[tuple[float, float]]:
    """Return, after each of some finished runs, the seconds so far and the test result of the best one.

    Args:
        strategy: The method, which knows scores and costs.
        trials: The runs, in the order in which they are made.
        known: The records of finished runs.
        again: Records of leading runs trained on the whole training set, by the number of the run; if given, test
            results are theirs, and the time for it is added.
    """
    total, leader, path = 0.0, None, []
    for i, number in enumerate(leaders(strategy, trials, known)):
        record, leader = known(trials[i]), known(trials[number]) if again is None else again[number]
        assert record is not None
        assert leader is not None
        total += strategy.seconds(record)
        path.append((total + (0.0 if again is None else leader["seconds"]["training"]), test_result(leader)))
    return path


def leaders(strategy: Strategy, trials: Sequence[Trial], known: KnownRecords) -> list[int]:
    """Return, after each of some finished runs, the number of the best one so far, the first of equals."""
    scores = [strategy.score(record) for trial in trials if (record := known(trial)) is not None]
    return [scores.index(max(scores[: i + 1])) for i in range(len(scores))]


def all_known(trials: Sequence[Trial], known: KnownRecords) -> list[Record] | None:
    """Return the records of some runs; None if not all of them are finished."""
    records = [record for trial in trials if (record := known(trial)) is not None]
    return records if len(records) == len(trials) else None


class ByObjective:
    """Methods without a validation set: candidates are trained on all data and chosen by the training objective.

    Args:
        name: Name of the method, as `Settings` knows it.
        lr_search: "race" for one run that drops candidates early, "grid" for a run with each candidate.
        kappa: Emphasis of the data; None for D/N, and for methods that have none.
        role: "reference", "rival" or "ablation".
        colour: Number of the method's colour in the charts.
        variant: What distinguishes it from the method in its usual form, such as "diagonal posterior"; "" if nothing.
        settings: Fields of `Settings` that its runs have beside those that all runs share.
    """

    searches = False

    def __init__(
        self,
        name: str,
        lr_search: str,
        kappa: float | None = None,
        *,
        role: str = "rival",
        colour: int = 3,
        variant: str = "",
        **settings: Any,
    ) -> None:
        self.name, self.lr_search, self.kappa, self.role, self.colour = name, lr_search, kappa, role, colour
        self.variant, self.settings = variant, settings

    def _trials(self, problem: Problem) -> list[Trial]:
        rates = problem.options.learning_rates
        own = self.settings if self.kappa is None else {**self.settings, "kappa": self.kappa}
        if self.lr_search == "race":
            return [problem.trial(method=self.name, learning_rates=rates, lr_search="race", **own)]
        return [problem.trial(method=self.name, learning_rates=(rate,), lr_search="grid", **own) for rate in rates]

    def plan(self, problem: Problem, known: KnownRecords) -> Plan:
        """Return the runs of all candidates, and the best of them."""
        trials = self._trials(problem)
        chosen = best(trials, known, self.score)
        finals = [] if chosen is None else [chosen]
        return Plan(trials, finals, finals, len(trials))

    def score(self, record: Record) -> float:
        """Return the training objective."""
        return -math.inf if record["objective"] is None else record["objective"]

    def seconds(self, record: Record) -> float:
        """Return the time of training, with the estimates of the objective."""
        return record["seconds"]["training"] + record["seconds"]["objective"]

    def curve(self, problem: Problem, known: KnownRecords) -> Curve:
        """Return the best test result so far after each candidate."""
        path = best_so_far(self, self._trials(problem), known)
        return Curve([(seconds, reached, reached, reached) for seconds, reached in path], [path[-1]])


class OneRun:
    """Methods that search for nothing: a single run on all data.

    Args:
        name: Name of the method.
        colour: Number of the method's colour in the charts.
        trial: Function that returns the run for a problem.
    """

    kappa: float | None = None
    searches = False
    role = "rival"

    def __init__(self, name: str, colour: int, trial: Callable[[Problem], Trial]) -> None:
        self.name, self.colour, self.trial = name, colour, trial

    def plan(self, problem: Problem, known: KnownRecords) -> Plan:
        """Return the run."""
        trials = [self.trial(problem)]
        finals = trials if known(trials[0]) is not None else []
        return Plan(trials, finals, finals, 1)

    def score(self, record: Record) -> float:
        """Return 0: there is nothing to choose from."""
        return 0.0

    def seconds(self, record: Record) -> float:
        """Return the time of training."""
        return record["seconds"]["training"]

    def curve(self, problem: Problem, known: KnownRecords) -> Curve:
        """Return the test result of the run."""
        ((seconds, reached),) = best_so_far(self, [self.trial(problem)], known)
        return Curve([(seconds, reached, reached, reached)], [(seconds, reached)])


class GridSearch(ABC):
    """MAP on four fifths of the training set for every cell of a grid, then on all of it with the best cell.

    The curve shows test results of the best cell, averaged over random subsets of the cells: of networks trained again
    on all examples if there is such a run of every cell (`Options.retrain`), else of those trained on four fifths. The
    method's result is the final run.
    """

    name = ""
    kappa: float | None = None
    searches = True
    role = "rival"
    colour = 1

    def cells(self, problem: Problem) -> list[Cell]:
        """Return the grid: a number for each axis of the prior, and a learning rate."""
        options = problem.options
        candidates = [options.ptyl_variances if axis.is_variance else options.strengths for axis in problem.search_axes]
        return [(values, rate) for values in itertools.product(*candidates) for rate in options.learning_rates]

    @abstractmethod
    def trial(self, problem: Problem, cell: Cell, known: KnownRecords) -> Trial:
        """Return the run of a cell."""

    def plan(self, problem: Problem, known: KnownRecords) -> Plan:
        """Return the runs of all cells, then one with the best cell on the whole training set."""
        cells = self.cells(problem)
        trials = [self.trial(problem, cell, known) for cell in cells]
        chosen = best(trials, known, self.score)
        retrain = problem.options.retrain == "all"
        expected = 2 * len(cells) if retrain else len(cells) + 1
        if chosen is None:
            return Plan(trials, [], [], expected)
        final = self.final(problem, cells[trials.index(chosen)])
        again = [self.final(problem, cell) for cell in cells] if retrain else []
        return Plan([*trials, final], [final], [chosen], expected, again)

    def final(self, problem: Problem, cell: Cell) -> Trial:
        """Return the run of the best cell on the whole training set."""
        return problem.point(*cell, whole=True)

    @abstractmethod
    def score(self, record: Record) -> float:
        """Return the score by which cells are compared, larger being better."""

    def seconds(self, record: Record) -> float:
        """Return the time that the run of a cell costs."""
        return record["seconds"]["training"] + record["seconds"]["validation"]

    def curve(self, problem: Problem, known: KnownRecords) -> Curve:
        """Return the test result of the best of n cells for each n, averaged over 500 random subsets of that size."""
        plan = self.plan(problem, known)
        records = [record for trial in plan.trials[:-1] if (record := known(trial)) is not None]
        final = known(plan.finals[0])
        assert final is not None
        total = sum(self.seconds(record) for record in records)
        scores, mean_seconds = [self.score(record) for record in records], total / len(records)
        again = all_known([self.final(problem, cell) for cell in self.cells(problem)], known)
        added = [0.0] * len(records)
        if again is not None:
            added = [mean for mean, _, _ in subset_curve(scores, [record["seconds"]["training"] for record in again])]
        points = subset_curve(scores, [test_result(record) for record in again or records])
        return Curve(
            [((i + 1) * mean_seconds + added[i], *point) for i, point in enumerate(points)],
            [(total + final["seconds"]["training"], test_result(final))],
            retrained=again is not None,
        )


def subset_curve(scores: Sequence[float], accuracies: Sequence[float]) -> list[tuple[float, float, float]]:
    """Return, for each n, the accuracy of the best of n cells by score: mean, 10th and 90th percentile.

    The statistics are over 500 fixed random subsets of each size: the first n cells of 500 random orders.
    """
    number = len(scores)
    by_score = sorted(range(number), key=lambda i: -scores[i])
    orders = torch.rand(SUBSETS, number, generator=torch.Generator().manual_seed(0)).argsort(
        1
    )  # random orders of the ranks by score
    best_rank = orders.cummin(1).values
    results = torch.tensor([accuracies[i] for i in by_score], dtype=torch.float64)[best_rank].sort(0).values
    low, high = SUBSETS // 10, -SUBSETS // 10
    return [(float(of_size.mean()), float(of_size[low]), float(of_size[high])) for of_size in results.T]
