"""Bayesian optimisation of a known function of three variables: ours, BoTorch's own loop, and random search.

    python benchmarks/map_bo.py [--seeds 10] [--iterations 20]

The function has one maximum, with the value 0, inside the search space of `map-bo`, and falls to -19 in its corners. A
cell of the table is the median (and worst) distance from this maximum over the seeds.
Needs `pip install -e ".[rivals]"`.
"""

from __future__ import annotations

import argparse
import statistics
import warnings

import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from botorch.optim import optimize_acqf
from gpytorch.mlls import ExactMarginalLogLikelihood

from deelbo.compare.strategies.map_bo import RATE, STRENGTH, propose

BOX = [STRENGTH, STRENGTH, RATE]
BEST = (-3.3, -5.1, -2.2)


def known(point: list[float]) -> float:
    """Return the value of the function to maximise, 0 at BEST."""
    return -sum(weight * (p - b) ** 2 for weight, p, b in zip((1.0, 0.3, 2.0), point, BEST, strict=True))


def ours(seed: int, iterations: int) -> list[float]:
    """Return the function values that our Bayesian optimisation visits."""
    points: list[list[float]] = []
    values: list[float] = []
    for _ in range(iterations):
        points.append(propose(points, values, BOX, seed))
        assert all(low <= p <= high for p, (low, high) in zip(points[-1], BOX, strict=True))
        values.append(known(points[-1]))
    return values


def botorch(seed: int, iterations: int) -> list[float]:
    """Return the function values that the loop in BoTorch's documentation visits from one random start."""
    torch.default_generator.manual_seed(seed)
    box = torch.tensor(BOX, dtype=torch.double).T
    X = box[0] + (box[1] - box[0]) * torch.rand(1, 3, dtype=torch.double)
    Y = torch.tensor([[known(X[0].tolist())]], dtype=torch.double)
    while len(X) < iterations:
        model = SingleTaskGP(X, Y, input_transform=Normalize(d=3), outcome_transform=Standardize(m=1))
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        improvement = LogExpectedImprovement(model, Y.max())
        new, _ = optimize_acqf(improvement, box, q=1, num_restarts=5, raw_samples=20)
        X, Y = torch.cat([X, new]), torch.cat([Y, Y.new_tensor([[known(new[0].tolist())]])])
    return Y.flatten().tolist()


def random(seed: int, iterations: int) -> list[float]:
    """Return the function values of uniformly random points."""
    generator = torch.Generator().manual_seed(seed)
    box = torch.tensor(BOX).T
    return [
        known((box[0] + (box[1] - box[0]) * torch.rand(3, generator=generator)).tolist()) for _ in range(iterations)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10, help="number of repetitions with different seeds")
    parser.add_argument("--iterations", type=int, default=20, help="evaluations of the function in each search")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    looks = [n for n in (5, 8, 11, 14, 20, 35) if n <= arguments.iterations]
    print("| search | " + " | ".join(f"after {n}" for n in looks) + " |\n" + "| --- " * (len(looks) + 1) + "|")
    for name, search in (("map-bo (ours)", ours), ("BoTorch's loop", botorch), ("random", random)):
        runs = [search(seed, arguments.iterations) for seed in range(arguments.seeds)]
        regrets = [[-max(values[:n]) for values in runs] for n in looks]
        cells = [f"{statistics.median(each):.3f} ({max(each):.3f})" for each in regrets]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
