"""Calibration on digits: where the free temperature fails, and how often prediction sets contain the truth.

    python benchmarks/calibration_digits.py cases OUT [--part 1/2]
    python benchmarks/calibration_digits.py coverage OUT [--part 1/2]

`cases` prints the free temperature and the best one with other settings, labels and sizes. `coverage` measures
prediction sets on 100 digits over 20 training sets, of a probe and of DE-ELBO, each with five folds; what it has found
is kept in OUT/coverage, so an interrupted measurement continues. Parts can run in several processes, one thread each.
"""

from __future__ import annotations

import argparse
import math
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from deelbo._files import read_json, write_json
from deelbo.compare.running import read_data
from deelbo.data import Data, Examples, split
from deelbo.finetuning import finetune
from deelbo.likelihoods import Categorical
from deelbo.likelihoods.temperature import held_out_factor
from deelbo.specs import ModelSpec
from small_data import CELLS

ALPHAS = (0.2, 0.1, 0.05)

# Name, number of examples, share of wrong labels, number of classes, settings.
CASES: list[tuple[str, int, float, int, dict[str, Any]]] = [
    ("as the default", 100, 0.0, 10, {}),
    ("two classes", 20, 0.0, 2, {}),
    ("1,000 examples", 1000, 0.0, 10, {}),
    ("20 % wrong labels", 100, 0.2, 10, {}),
    ("20 % wrong labels, 1,000 examples", 1000, 0.2, 10, {}),
    ("random labels", 100, 1.0, 10, {}),
    ("50 steps", 100, 0.0, 10, {"steps": 50}),
    ("1,000 steps", 100, 0.0, 10, {"steps": 1000}),
    ("prior L2-zero", 100, 0.0, 10, {"prior": "l2-zero"}),
    ("LA-LML", 100, 0.0, 10, {"method": "la-lml", "learning_rates": (0.01,)}),
    (
        "MAP without regularisation",
        100,
        0.0,
        10,
        {"method": "map", "prior_variances": {"backbone": math.inf, "head": math.inf}},
    ),
    ("MAP, strong regularisation", 100, 0.0, 10, {"method": "map", "prior_variances": {"backbone": 0.1, "head": 0.1}}),
    ("classifier starts at random", 100, 0.0, 10, {"head_start": "random"}),
]


def cases(arguments: argparse.Namespace) -> None:
    """Print the free temperature and the best one where the rule might fail."""
    part, parts = map(int, arguments.part.split("/"))
    data_spec, model_spec = CELLS["digits10"].specs(arguments.out, arguments.out)
    everything = read_data(data_spec, 500)
    for title, number, wrong, classes, changed in CASES[part - 1 :: parts]:
        data = of_classes(everything, classes)
        data = split(data, min(number, len(data.train)), None, 1001)
        generator = torch.Generator().manual_seed(0)
        swapped = torch.rand(len(data.train), generator=generator) < wrong
        other = torch.randint(classes, (len(data.train),), generator=generator)
        labels = torch.where(swapped, other, torch.tensor(data.train.labels)).tolist()
        network, reader = model_spec.load(data, 1001)
        augmented, plain = reader.training_sets(replace(data.train, labels=labels), False, None, False)
        settings: dict[str, Any] = {"steps": 200, "batch_size": 32, "learning_rates": (0.03,), "seed": 1001, **changed}
        result = finetune(network, augmented, plain_train_set=plain, device="cpu", **settings)
        assert data.test is not None
        tested, truth = reader.dataset(data.test), torch.tensor(data.test.labels)
        logits = result.raw_predictions(tested)
        best = 1 / held_out_factor(logits, truth, Categorical())
        found = {
            name: result.evaluate(tested, temperature=t) for name, t in (("plain", 1), ("free", None), ("best", best))
        }
        shown = " | ".join(f"{found[name]['nll']:.3f}, {found[name]['ece']:.3f}" for name in found)
        print(
            f"| {title} | {found['plain']['accuracy']:.1%} | {result.temperature:.2f} | {best:.2f} | {shown} |",
            flush=True,
        )


def of_classes(data: Data, number: int) -> Data:
    """Return the examples of the first classes."""

    def few(examples: Examples) -> Examples:
        return examples.take([i for i, label in enumerate(examples.labels) if label < number])

    assert data.test is not None
    targets = replace(data.targets, names=data.targets.names[:number])
    return replace(data, train=few(data.train), test=few(data.test), targets=targets)


def coverage(arguments: argparse.Namespace) -> None:
    """Measure how often prediction sets hold the true class, and how large they are."""
    path = arguments.out / "coverage"
    part, parts = map(int, arguments.part.split("/"))
    data_spec, model_spec = CELLS["digits10"].specs(arguments.out, arguments.out)
    everything = read_data(data_spec, 500)
    for seed in range(20)[part - 1 :: parts]:
        for method in ("probe", "de-elbo"):
            file = path / f"{method}-{seed}.json"
            if not file.exists():
                write_json(file, one_coverage(split(everything, 100, None, seed), model_spec, method, seed))
    for method in ("probe", "de-elbo"):
        found = [read_json(file) for file in sorted(path.glob(f"{method}-*.json"))]
        for alpha in ALPHAS:
            shares = [row[str(alpha)]["coverage"] for row in found]
            sizes = statistics.mean(row[str(alpha)]["size"] for row in found)
            accuracy = statistics.mean(row["accuracy"] for row in found)
            print(
                f"| {method} | {len(found)} | {accuracy:.1%} | {1 - alpha:.0%} | {statistics.mean(shares):.1%} | "
                f"{min(shares):.1%} to {max(shares):.1%} | {sizes:.2f} |"
            )


def one_coverage(data: Data, model_spec: ModelSpec, method: str, seed: int) -> dict[str, Any]:
    """Train one run with five folds, and measure its prediction sets on the test set."""
    assert data.test is not None
    network, reader = model_spec.load(data, seed)
    augmented, plain = reader.training_sets(data.train, False, None, False)
    settings: dict[str, Any] = {
        "steps": 200,
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
    parser.add_argument("what", choices=["cases", "coverage"])
    parser.add_argument("out", type=Path)
    parser.add_argument("--part", default="1/1")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    {"cases": cases, "coverage": coverage}[arguments.what](arguments)


if __name__ == "__main__":
    main()
