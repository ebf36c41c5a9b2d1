"""The search for the best hyperparameters of RFF regression, by L-BFGS."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from deelbo._extras import require
from deelbo.rff.problem import Problem, split

LENGTHSCALES = (0.01, 0.03, 0.1, 0.3, 1.0)  # initial lengthscales, in units of the inputs' spread
SCALES = ((1.0, 0.1), (0.1, 0.1), (0.4, 0.5), (10.0, 0.1))  # initial (outputscale, noise), in units of targets' spread
FEW = 2000  # number of rows on which a search starts
LABELLED = 1000  # number of rows whose labels give a classifier its shortest lengthscale
STRIDE = 0.8  # ratio of successive lengthscales on the way down
NEIGHBOURS = 3  # number of nearest neighbours within the shortest lengthscale
DROP = 0.005  # smallest fall per row that counts as having passed a maximum; random features are rougher than less


@dataclass
class Search:
    """A search for the log hyperparameters with the highest objective, by L-BFGS within bounds.

    Args:
        problem: Objective to maximise.
        ard: Whether each input has its own lengthscale.
        floor: Lower bound of the noise.
        max_iter: Largest number of iterations of each L-BFGS run.
        progress: Called with each value of the objective, an average over rows.
        generator: Generator for the choice of rows that distances are measured on.
        evaluations: Number of evaluations of the objective so far.
        singular: Whether a kernel matrix was singular to working precision.
        converged: Whether the last L-BFGS run converged.
    """

    problem: Problem
    ard: bool
    floor: float
    max_iter: int
    progress: Callable[[float], None]
    generator: torch.Generator
    evaluations: int = 0
    singular: bool = False
    converged: bool = True

    def __post_init__(self) -> None:
        self.inputs = self.problem.x.shape[1] if self.ard else 1
        self.spread = median_distance(self.problem.x, self.generator) / math.sqrt(2) or 1.0
        self.width = float(self.problem.targets.double().square().mean().sqrt()) or 1.0

    def bounds(self, shortest: float, longest: float) -> list[tuple[float, float]]:
        """Return the bounds of the log hyperparameters, for lengthscales from `shortest` to `longest`."""
        width, floor = math.log(self.width), math.log(self.floor)
        return [(math.log(shortest), math.log(longest))] * self.inputs + [(width - 7, width + 7), (floor, floor + 12)]

    def starts(self, lengthscale: float) -> list[Tensor]:
        """Return initial log hyperparameters with this lengthscale, one for each pair of `SCALES`."""
        pairs = [(math.log(o * self.width), math.log(n * self.width)) for o, n in SCALES]
        return [torch.tensor([math.log(lengthscale)] * self.inputs + list(pair), dtype=torch.float64) for pair in pairs]

    def best(self, points: list[Tensor]) -> tuple[Tensor, float]:
        """Return the point with the highest objective among log hyperparameters, and its value."""
        return max(((point, self.value(point)) for point in points), key=lambda pair: pair[1])

    def value(self, logs: Tensor) -> float:
        """Return the average objective per row; minus infinity where the kernel is singular to working precision."""
        self.evaluations += 1
        try:
            value = self.problem.value(self.problem.statistics(logs), split(logs)[2]).item() / self.problem.unit
        except torch.linalg.LinAlgError:
            self.singular = True
            return -math.inf
        self.progress(value)
        return value

    def climb(self, first: Tensor, bounds: list[tuple[float, float]]) -> tuple[Tensor, float]:
        """Run L-BFGS; return the log hyperparameters at a local maximum, and its value."""
        optimize, numpy = require("scipy.optimize", "rff"), require("numpy", "rff")

        def negative(logs: object) -> tuple[float, object]:
            self.evaluations += 1
            try:
                value, gradient = self.problem.value_and_gradient(torch.tensor(logs, dtype=torch.float64))
            except torch.linalg.LinAlgError:
                self.singular = True
                return 1e100, numpy.zeros(len(first))
            self.progress(value / self.problem.unit)
            return -value / self.problem.unit, -gradient.numpy() / self.problem.unit

        exact = self.problem.A.dtype == torch.float64
        options = {"maxiter": self.max_iter, "ftol": 1e-8 if exact else 1e-6, "gtol": 1e-5 if exact else 1e-4}
        run = optimize.minimize(negative, first.numpy(), jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        self.converged = run.status != 1  # 1: max_iter
        return torch.from_numpy(run.x), -float(run.fun)

    def highest(self) -> tuple[Tensor, list[tuple[float, float]]]:
        """Return the highest of several local maxima, and the bounds; used for the marginal likelihood."""
        points = sorted((self.best(self.starts(s * self.spread)) for s in LENGTHSCALES), key=lambda pair: -pair[1])
        bounds = self.bounds(1e-3 * self.spread, 1e3 * self.spread)
        return max((self.climb(point, bounds) for point, _ in points[:2]), key=lambda pair: pair[1])[0], bounds

    def longest(self, shortest: float) -> tuple[Tensor, list[tuple[float, float]]]:
        """Return the local maximum with the longest lengthscale, and the bounds; used for isotropic posteriors.

        For kappa = D/N their objective has higher maxima at shorter lengthscales, down to those where every row is
        memorised: with many features, |m|^2 / 2 is the only term that depends on the lengthscale. So the search starts
        at a long lengthscale, optimises outputscale and noise at each, and stops at the first maximum or at `shortest`.
        """
        shortest = min(max(shortest, 1e-3 * self.spread), 2 * self.spread)
        lengthscale, visited, points = 2 * self.spread, list[tuple[Tensor, float]](), list[Tensor]()
        while True:
            bounds = self.bounds(lengthscale, lengthscale)
            point, _ = self.best([*points, *self.starts(lengthscale)])
            point, value = self.climb(point, bounds)
            visited.append((point, value))
            top = max(pair[1] for pair in visited)
            if lengthscale <= shortest or (visited[0][1] + DROP < top and value < top - DROP):
                break
            shorter = max(lengthscale * STRIDE, shortest)
            points = [torch.cat([point[:-2] + math.log(shorter / lengthscale), point[-2:]])]
            lengthscale = shorter
        point = max(visited, key=lambda pair: pair[1])[0]
        centre = math.exp(point[0])
        if self.ard:  # from there, each input learns its own lengthscale
            bounds = self.bounds(0.1 * centre, 1e3 * centre)
        else:
            bounds = self.bounds(max(centre * STRIDE, min(shortest, centre)), centre / STRIDE)
        return self.climb(point, bounds)[0], bounds


@dataclass(frozen=True)
class Found:
    """Result of a search for hyperparameters.

    Args:
        logs: Best log hyperparameters.
        value: Objective at these hyperparameters.
        evaluations: Number of evaluations of the objective.
        problems: Problems to warn about, as keys of the regressor's `PROBLEMS`.
    """

    logs: Tensor
    value: float
    evaluations: int
    problems: tuple[str, ...]


def maximise(
    problem: Problem, ard: bool, floor: float, *, max_iter: int, seed: int, progress: Callable[[float], None]
) -> Found:
    """Return the best hyperparameters.

    With many rows, the search uses a random subset of them first, and all rows in the end.

    Args:
        problem: Objective to maximise.
        ard: Whether each input has its own lengthscale.
        floor: Lower bound of the noise, without which the objective has no maximum for kappa > D/N.
        max_iter: Largest number of iterations of each L-BFGS run.
        seed: Seed for the random subset of rows.
        progress: Called with each value of the objective, an average over rows.

    Raises:
        ValueError: If no hyperparameters give a finite objective.
    """
    number, size, _ = problem.sizes
    generator = torch.Generator().manual_seed(seed)
    lml, few = problem.objective == "lml", problem
    sample = FEW if lml else max(FEW, 2 * size)  # isotropic: too many rows for R features to interpolate
    if number > 2 * sample:
        rows = torch.randperm(number, generator=generator)[:sample]
        few = problem.subset(rows.sort().values.to(problem.x.device))
    search = Search(few, ard, floor, max_iter, progress, generator)
    shortest = 0.0 if lml else _neighbourhood(problem.x, generator)
    best, bounds = search.highest() if lml else search.longest(shortest)
    search.problem = problem
    best, value = search.climb(best, bounds)
    if not math.isfinite(value) or value < -1e90:
        raise ValueError(
            "the objective is not finite for any hyperparameters: scale inputs and targets to a spread of about 1"
        )
    (low, high), least = bounds[-2], bounds[-1][0]
    wrong = {
        "noise": best[-1] <= least + 1e-6,
        "small": best[-2] <= low + 1e-6,
        "large": best[-2] >= high - 1e-6,
        "memorises": not lml and math.exp(best[:-2].max()) <= shortest * (1 + 1e-6),
        "unfinished": not search.converged,
        "singular": search.singular and problem.A.dtype != torch.float64,
    }
    return Found(best, value * problem.unit, search.evaluations, tuple(name for name, is_so in wrong.items() if is_so))


def labelled_lengthscales(x: Tensor, labels: Tensor, A: Tensor, b: Tensor, *, ard: bool, seed: int) -> Tensor:
    """Return the log lengthscales with the highest marginal likelihood of regression on one-hot labels.

    Args:
        x: Inputs, [N, H].
        labels: Class numbers from 0 on, [N].
        A: Random frequencies, [H, R].
        b: Random phases, [R].
        ard: Whether each input has its own lengthscale.
        seed: Seed for the random subset of rows that is used.
    """
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randperm(len(x), generator=generator)[:LABELLED].to(x.device)
    targets = F.one_hot(labels[rows]).double()
    targets = targets[:, targets.any(0)]  # drop classes without an example among these rows
    targets = targets - targets.mean(0)
    problem = Problem(x[rows].double(), targets, A.double(), b.double(), "lml", 1.0)
    floor = 1e-3 * (float(targets.std(correction=0)) or 1.0)
    return Search(problem, ard, floor, 100, lambda value: None, generator).highest()[0][:-2]


def median_distance(x: Tensor, generator: torch.Generator) -> float:
    """Return the median distance between two different rows, estimated on up to 512 rows; robust to outliers."""
    some = x[torch.randperm(len(x), generator=generator)[:512].to(x.device)].double()
    distances = torch.cdist(some, some, compute_mode="donot_use_mm_for_euclid_dist")
    positive = distances[distances > 0]
    return float(positive.median()) if len(positive) else 0.0


def _neighbourhood(x: Tensor, generator: torch.Generator) -> float:
    """Return the median distance of a row to its third nearest neighbour, estimated on up to 256 rows.

    With a shorter lengthscale most rows have hardly a neighbour to learn from, so a fit can only memorise them.
    Isotropic objectives with kappa > 1 are higher there, but such fits predict new rows badly.
    """
    some = x[torch.randperm(len(x), generator=generator)[:256].to(x.device)].double()
    nearest = torch.empty(len(some), 0, dtype=torch.float64, device=x.device)
    for rows in x.split(65536):
        distances = torch.cdist(some, rows.double(), compute_mode="donot_use_mm_for_euclid_dist")
        nearest = torch.cat([nearest, distances], 1)
        nearest = nearest.topk(min(NEIGHBOURS + 1, nearest.shape[1]), largest=False).values  # and itself
    return float(nearest[:, -1].median())
