"""What the race for a learning rate costs, and what it loses against the grid.

    python benchmarks/lr_search.py [--steps 600] [--seeds 0,1,2]

Cost is in full runs (steps of all candidates / steps of one); regret is how much worse the race's final objective is
than the grid's, relative to the grid's. So far small networks on scikit-learn's digits only.
"""

from __future__ import annotations

import argparse
import contextlib
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

import deelbo


def digits(number: int, seed: int) -> TensorDataset:
    images, labels = (torch.tensor(array) for array in load_digits(return_X_y=True))
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))[:number]
    return TensorDataset(images[order].float() / 16, labels[order])


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def convolutional() -> nn.Module:
    layers = [nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()]
    layers += [nn.Conv2d(16, 32, 3, stride=2), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10)]
    return nn.Sequential(*layers)


TASKS: dict[str, tuple[Callable[[], nn.Module], str, int, dict[str, Any]]] = {
    "MLP, N = 100, L2-zero": (mlp, "2", 100, {"prior": "l2-zero"}),
    "MLP, N = 1000, L2-zero": (mlp, "2", 1000, {"prior": "l2-zero"}),
    "MLP, N = 300, L2-SP": (mlp, "2", 300, {"prior": "l2-sp"}),
    "MLP, N = 300, ELBO": (mlp, "2", 300, {"prior": "l2-zero", "method": "elbo"}),
    "CNN with batch norm, N = 300, L2-SP": (convolutional, "8", 300, {"prior": "l2-sp"}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seeds", default="0,1,2")
    arguments = parser.parse_args()
    print("| task | seed | grid chose | race chose | objective / (kappa N): grid | race | regret | cost, full runs |")
    print("| --- " * 8 + "|")
    for name, (network, head, number, options) in TASKS.items():
        for seed in map(int, arguments.seeds.split(",")):
            results, costs = {}, {}
            for search in ("grid", "race"):
                torch.manual_seed(seed)
                events: list[dict[str, Any]] = []
                common = {"steps": arguments.steps, "batch_size": 32, "seed": seed, "device": "cpu", **options}
                start = time.perf_counter()
                with contextlib.suppress(RuntimeError), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    results[search] = deelbo.finetune(
                        network(), digits(number, seed), head, lr_search=search, report=events.append, **common
                    )
                costs[search] = sum("value" not in event for event in events) / arguments.steps
                costs[search + "_seconds"] = time.perf_counter() - start
            grid, race = results["grid"], results["race"]
            scale = grid.history[-1]["kappa"] * number
            regret = (grid.objective - race.objective) / abs(grid.objective)
            cells = [
                name,
                str(seed),
                f"{grid.learning_rate:g}",
                f"{race.learning_rate:g}",
                f"{grid.objective / scale:.4f}",
                f"{race.objective / scale:.4f}",
                f"{regret:.1%}",
                f"{costs['race']:.2f}",
            ]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
