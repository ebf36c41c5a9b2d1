"""How often prediction sets contain the truth: digits, 20 training sets, a probe and DE-ELBO with five folds each.

    python benchmarks/prediction_sets.py OUT [--number 50] [--steps 100] [--methods de-elbo] [--part 1/2]

What was found is kept in OUT/coverage, so an interrupted measurement continues. Parts can run in several processes, one
thread each.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

import torch

from deelbo._files import read_json, write_json
from deelbo._memory import keep_memory
from deelbo.compare.running import read_data
from deelbo.data import Data, split
from deelbo.finetuning import finetune
from deelbo.specs import ModelSpec
from small_data import CELLS

ALPHAS = (0.2, 0.1, 0.05)


def coverage(arguments: argparse.Namespace) -> None:
    """Measure how often prediction sets hold the true class, and how large they are."""
    path = arguments.out / "coverage" / f"{arguments.number}-{arguments.steps}"
    methods = arguments.methods.split(",")
    part, parts = map(int, arguments.part.split("/"))
    data_spec, model_spec = CELLS["digits10"].specs(arguments.out, arguments.out)
    everything = read_data(data_spec, 500)
    path.mkdir(parents=True, exist_ok=True)
    for seed in range(20)[part - 1 :: parts]:
        for method in methods:
            file = path / f"{method}-{seed}.json"
            if not file.exists():
                data = split(everything, arguments.number, None, seed)
                write_json(file, one_coverage(data, model_spec, method, seed, arguments.steps))
    for method in methods:
        found = [read_json(file) for file in sorted(path.glob(f"{method}-*.json"))]
        for alpha in ALPHAS:
            shares = [row[str(alpha)]["coverage"] for row in found]
            sizes = statistics.mean(row[str(alpha)]["size"] for row in found)
            accuracy = statistics.mean(row["accuracy"] for row in found)
            print(
                f"| {method} | {len(found)} | {accuracy:.1%} | {1 - alpha:.0%} | {statistics.mean(shares):.1%} | "
                f"{min(shares):.1%} to {max(shares):.1%} | {sizes:.2f} |"
            )


def one_coverage(data: Data, model_spec: ModelSpec, method: str, seed: int, steps: int) -> dict[str, Any]:
    """Train one run with five folds, and measure its prediction sets on the test set."""
    assert data.test is not None
    network, reader = model_spec.load(data, seed)
    augmented, plain = reader.training_sets(data.train, False, None, False)
    settings: dict[str, Any] = {
        "steps": steps,
        "batch_size": 32,
        "learning_rates": (0.03,),
        "method": method,
        "seed": seed,
    }
    result = finetune(network, augmented, plain_train_set=plain, device="cpu", calibrate="folds=5", **settings)
    prediction, labels = result.predict_dataset(reader.dataset(data.test)), torch.tensor(data.test.labels)
    row: dict[str, Any] = {"accuracy": float((prediction.argmax(1) == labels).double().mean())}
    for alpha in ALPHAS:
        sets = result.likelihood.sets(prediction, result.calibration.limits(alpha))
        inside = float(sets.gather(1, labels[:, None]).double().mean())
        row[str(alpha)] = {"coverage": inside, "size": float(sets.double().sum(1).mean())}
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--number", type=int, default=100)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--methods", default="probe,de-elbo")
    parser.add_argument("--part", default="1/1")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keep_memory()
    coverage(arguments)


if __name__ == "__main__":
    main()
