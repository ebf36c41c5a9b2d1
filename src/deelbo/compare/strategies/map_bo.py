"""MAP with Bayesian optimisation of the strengths of regularisation and the learning rate."""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from deelbo._extras import require
from deelbo._seeds import mix
from deelbo.compare.problem import Options, Problem, Trial
from deelbo.compare.records import KnownRecords, Record
from deelbo.compare.strategies.base import STRATEGIES, Curve, Plan, all_known, best_so_far, leaders, test_result
from deelbo.compare.strategies.map_grid import validation_score

# Bounds of the search as exponents of ten: (lowest, highest).
STRENGTH, PTYL_VARIANCE, RATE = (-6.0, -2.0), (0.0, 9.0), (-4.0, -1.0)
RESTARTS, RAW_SAMPLES = 5, 20


def propose(points: Sequence[Sequence[float]], values: Sequence[float], bounds: Sequence[Sequence[float]],
            seed: int) -> list[float]:  # fmt: skip
    """Return the point to try next: a random one at first, then where log expected improvement is largest.

    A Gaussian process (BoTorch's SingleTaskGP) on inputs scaled to the unit cube and standardised values.

    Args:
        points: Points that were tried so far.
        values: Score of each point, larger being better; -inf for a failure, which counts as much worse than the worst.
        bounds: (lowest, highest) of each coordinate.
        seed: Seed of everything random.
    """
    box = torch.tensor(bounds, dtype=torch.float64).T
    generator = torch.Generator().manual_seed(mix(seed, len(points)))
    finite = [value for value in values if value > -math.inf]
    if not finite:
        drawn = torch.rand(len(bounds), generator=generator, dtype=torch.float64)
        return (box[0] + (box[1] - box[0]) * drawn).tolist()
    worst = min(finite) - (max(finite) - min(finite)) if len(finite) > 1 else finite[0] - 1
    X = torch.tensor(points, dtype=torch.float64)
    y = torch.tensor([max(value, worst) for value in values], dtype=torch.float64)[:, None]
    with torch.random.fork_rng([]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # BoTorch warns about a fit to two points
        torch.default_generator.manual_seed(mix(seed, len(points)))
        return _maximise(X, y, box).clamp(box[0], box[1]).tolist()


def _maximise(X: Tensor, y: Tensor, box: Tensor) -> Tensor:
    botorch: Any = require("botorch", "rivals")
    for part in ("acquisition.analytic", "fit", "models", "models.transforms", "optim"):
        require(f"botorch.{part}", "rivals")
    transforms = botorch.models.transforms
    model = botorch.models.SingleTaskGP(
        X,
        y,
        input_transform=transforms.Normalize(d=X.shape[1], bounds=box),
        outcome_transform=transforms.Standardize(m=1),
    )
    botorch.fit.fit_gpytorch_mll(require("gpytorch", "rivals").mlls.ExactMarginalLogLikelihood(model.likelihood, model))
    improvement = botorch.acquisition.analytic.LogExpectedImprovement(model, best_f=y.max())
    best, _ = botorch.optim.optimize_acqf(improvement, bounds=box, q=1, num_restarts=RESTARTS, raw_samples=RAW_SAMPLES)
    return best[0].detach()


class Repetition(NamedTuple):
    """One repetition of the search.

    Args:
        trials: Its runs on four fifths that are known so far.
        again: The same points on the whole training set.
        best: Number of the best of them; None until all of the repetition are finished.
    """

    trials: list[Trial]
    again: list[Trial]
    best: int | None


class MAPBayesianOptimisation:
    """Points tried one after the other on four fifths of the training set, then the best point on all of it.

    The validation NLL on the other fifth is minimised. Several repetitions, each from another random point, run at the
    same time; each has its own final run.
    """

    name, role, colour = "map-bo", "rival", 2
    kappa: float | None = None
    searches = True

    def _bounds(self, problem: Problem) -> list[tuple[float, float]]:
        return [*(PTYL_VARIANCE if axis.is_variance else STRENGTH for axis in problem.search_axes), RATE]

    def _trial(self, problem: Problem, point: Sequence[float], whole: bool) -> Trial:
        *values, rate = (10**value for value in point)
        return problem.point(tuple(values), rate, whole)

    def _propose(
        self, problem: Problem, run: int, points: list[list[float]], values: list[float], known: KnownRecords
    ) -> list[float]:
        """Return the next point; it is stored, so that other versions of the libraries do not change it later."""
        seen = [problem.seed, run, problem.trial().key, points, [None if v == -math.inf else v for v in values]]
        key = hashlib.sha256(json.dumps(seen).encode()).hexdigest()[:24]
        proposal = known.records.proposal(key)
        if proposal is None:
            proposal = propose(points, values, self._bounds(problem), mix(problem.seed, run))
            proposal = [round(value, 6) for value in proposal]
            known.records.keep_proposal(key, proposal)
        return proposal

    def _search(self, problem: Problem, run: int, known: KnownRecords) -> Repetition:
        """Return the known runs of one repetition."""
        points: list[list[float]] = []
        values: list[float] = []
        trials: list[Trial] = []
        again: list[Trial] = []
        for _ in range(problem.options.bo_iterations):
            point = self._propose(problem, run, points, values, known)
            trials.append(self._trial(problem, point, whole=False))
            again.append(self._trial(problem, point, whole=True))
            record = known(trials[-1])
            if record is None:
                return Repetition(trials, again, None)
            points.append(point)
            values.append(self.score(record))
        return Repetition(trials, again, values.index(max(values)))

    def plan(self, problem: Problem, known: KnownRecords) -> Plan:
        """Return the runs of all repetitions, with the final runs once every repetition has reached its own."""
        searches = [self._search(problem, run, known) for run in range(problem.options.bo_runs)]
        ended = [(search, search.best) for search in searches if search.best is not None]
        finals = [search.again[best] for search, best in ended]
        chosen = [search.trials[best] for search, best in ended]
        trials = [trial for search in searches for trial in search.trials] + finals
        again = []
        if problem.options.retrain == "all":
            again = [search.again[i] for search, _ in ended for i in dict.fromkeys(leaders(self, search.trials, known))]
        expected = max(len(searches) * (problem.options.bo_iterations + 1), len({t.key for t in (*trials, *again)}))
        if len(ended) < len(searches):
            return Plan(trials, [], [], expected, again)
        return Plan(trials, finals, chosen, expected, again)

    def score(self, record: Record) -> float:
        """Return minus the validation NLL."""
        return validation_score(record)

    def seconds(self, record: Record) -> float:
        """Return the time of training and validation."""
        return record["seconds"]["training"] + record["seconds"]["validation"]

    def curve(self, problem: Problem, known: KnownRecords) -> Curve:
        """Return the best test result so far, averaged over the repetitions; of networks trained again if all were."""
        searches = [self._search(problem, run, known) for run in range(problem.options.bo_runs)]
        leading = [leaders(self, search.trials, known) for search in searches]
        again = [
            all_known([search.again[i] for i in order], known) for search, order in zip(searches, leading, strict=True)
        ]
        retrained = all(records is not None for records in again)
        paths, finals = [], []
        for search, order, records in zip(searches, leading, again, strict=True):
            plain = best_so_far(self, search.trials, known)
            whole = dict(zip(order, records or (), strict=True)) if retrained else {}
            paths.append(best_so_far(self, search.trials, known, whole) if retrained else plain)
            last = known(search.again[order[-1]])
            assert last is not None
            finals.append((plain[-1][0] + last["seconds"]["training"], test_result(last)))
        points = []
        for step in zip(*paths, strict=True):
            times, reached = zip(*step, strict=True)
            points.append((sum(times) / len(times), sum(reached) / len(reached), min(reached), max(reached)))
        return Curve(points, finals, retrained)


@STRATEGIES.register("map-bo", "MAP with Bayesian optimisation on held-out data")
def map_bo(options: Options) -> list[MAPBayesianOptimisation]:
    """Return the Bayesian optimisation by validation NLL.

    Raises:
        ModuleNotFoundError: If there is no BoTorch.
    """
    require("botorch", "rivals")
    return [MAPBayesianOptimisation()]
