"""Where the free temperature is right and where it fails: digits with other settings, labels, sizes and tasks.

    python benchmarks/calibration_cases.py OUT [--part 1/2]

Each case is one training set and one learning rate; 500 test images have the right labels. What was found is kept in
OUT/cases, so an interrupted measurement continues. In the end a table is printed, and reliability of the cases that
fail is drawn into OUT/failures.png. Parts can run in several processes, one thread each.
"""

from __future__ import annotations

import argparse
import csv
import math
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import torch
from PIL import Image

from calibration import draw_reliability
from deelbo._files import read_json, write_json
from deelbo._head import find_head
from deelbo._memory import keep_memory
from deelbo._modules import select
from deelbo.cli.quickstart import write_digits
from deelbo.compare.running import read_data
from deelbo.data import Data, Examples, split
from deelbo.finetuning import finetune
from deelbo.likelihoods.temperature import held_out_factor
from deelbo.report.views.base import reliability
from deelbo.result import Result
from deelbo.specs import DataSpec, ModelSpec
from deelbo.training.batches import labels_of

SEED = 1001
TARGETS = {"pair": "classification", "digits": "multilabel", "sum": "regression"}  # of images with two digits


@dataclass(frozen=True)
class Case:
    """One training run on digits that differs from the default in one way.

    Args:
        title: What differs.
        number: Number of training images.
        wrong: Share of training labels that are replaced by random ones.
        classes: Number of classes: the first digits.
        target: "digit", or what is learned of images with two digits: "pair" (100 classes), "digits" (several labels)
            or "sum" (a number).
        augment: Whether training images are cropped at random.
        frozen: Whether all but the classifier keeps its pretrained weights.
        settings: Settings of the run that differ.
    """

    title: str
    number: int = 100
    wrong: float = 0.0
    classes: int = 10
    target: str = "digit"
    augment: bool = True
    frozen: bool = False
    settings: dict[str, Any] = field(default_factory=dict)


MAP = {"method": "map", "prior_variances": {"backbone": math.inf, "head": math.inf}}
CASES = [
    Case("as the default"),
    Case("two classes", number=20, classes=2),
    Case("100 classes (two digits in an image)", number=500, target="pair"),
    Case("several labels (the digits in an image)", number=200, target="digits"),
    Case("a number (the sum of two digits)", number=200, target="sum"),
    Case("1,000 examples", number=1000),
    Case("20 % wrong labels", wrong=0.2),
    Case("20 % wrong labels, 1,000 examples", number=1000, wrong=0.2),
    Case("random labels", wrong=1.0),
    Case("50 steps", settings={"steps": 50}),
    Case("1,000 steps", settings={"steps": 1000}),
    Case("without augmentation", augment=False),
    Case("frozen features", frozen=True),
    Case("prior L2-zero", settings={"prior": "l2-zero"}),
    Case("LA-LML", settings={"method": "la-lml", "learning_rates": (0.01,)}),
    Case("MAP without regularisation", settings=MAP),
    Case("MAP, strong regularisation", settings={**MAP, "prior_variances": {"backbone": 0.1, "head": 0.1}}),
    Case("classifier starts at random", settings={"head_start": "random"}),
]
FAILURES = ("20 % wrong labels, 1,000 examples", "random labels", "LA-LML", "frozen features")


def data_of(case: Case, out: Path) -> tuple[Data, ModelSpec]:
    """Return the examples of a case, before a training set is drawn, and its network."""
    digits = write_digits(out / "digits", 1000, 600)
    if case.target == "digit":
        data = read_data(DataSpec(str(digits), flip=False), 500)
        return of_classes(data, case.classes), ModelSpec("offline:efficientnet_lite0", image_size=32)
    folder = write_pairs(digits, out / "pairs")
    spec = DataSpec(str(folder), label_column=case.target, task=TARGETS[case.target], flip=False)
    return read_data(spec, 500), ModelSpec("offline:efficientnet_lite0", image_size=64)


def write_pairs(digits: Path, folder: Path) -> Path:
    """Write images with two digits each, one at the top left and one at the bottom right, every pair equally often."""
    for part, number in (("train", 10), ("test", 5)):
        files = {d: sorted((digits / part / str(d)).glob("*.png")) for d in range(10)}
        (folder / part).mkdir(parents=True, exist_ok=True)
        with (folder / part / "targets.csv").open("w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["file", *TARGETS])
            for first in range(10):
                for second in range(10):
                    for i in range(number):
                        image = Image.new("L", (16, 16), 255)
                        image.paste(Image.open(files[first][(number * second + i) % len(files[first])]), (0, 0))
                        image.paste(Image.open(files[second][(number * first + i) % len(files[second])]), (8, 8))
                        name = f"{first}{second}-{i}.png"
                        image.save(folder / part / name)
                        labels = "|".join(sorted({str(first), str(second)}))
                        table.writerow([name, f"pair {first}{second}", labels, float(first + second)])
    return folder


def of_classes(data: Data, number: int) -> Data:
    """Return the examples of the first classes."""

    def few(examples: Examples) -> Examples:
        return examples.take([i for i, label in enumerate(examples.labels) if label < number])

    assert data.test is not None
    targets = replace(data.targets, names=data.targets.names[:number])
    return replace(data, train=few(data.train), test=few(data.test), targets=targets)


def measured(case: Case, out: Path) -> dict[str, Any]:
    """Train the network of a case, and return its temperatures and its metrics with each."""
    data, model_spec = data_of(case, out)
    data = split(data, min(case.number, len(data.train)), None, SEED)
    assert data.test is not None
    train = data.train
    if case.wrong:
        generator = torch.Generator().manual_seed(0)
        swapped = torch.rand(len(train), generator=generator) < case.wrong
        other = torch.randint(case.classes, (len(train),), generator=generator)
        train = replace(train, labels=torch.where(swapped, other, torch.tensor(train.labels)).tolist())
    network, reader = model_spec.load(data, SEED)
    if case.frozen:
        classifier = select(dict(network.named_parameters()), find_head(network))
        for name, weight in network.named_parameters():
            weight.requires_grad_(name in classifier)
    augmented, plain = reader.training_sets(train, False, None, False)
    settings: dict[str, Any] = {"steps": 200, "batch_size": 32, "learning_rates": (0.03,), "seed": SEED}
    result = finetune(
        network,
        augmented if case.augment else plain,
        plain_train_set=plain,
        device="cpu",
        **{**settings, **case.settings},
    )
    return temperatures(result, reader.dataset(data.test))


def temperatures(result: Result, tested: Any) -> dict[str, Any]:
    """Return the free and the best temperature of a run, and its metrics and reliability with and without."""
    raw, truth, likelihood = result.raw_predictions(tested), labels_of(tested), result.likelihood
    if likelihood.scale_free:
        best = 1 / held_out_factor(raw, truth, likelihood)
    else:
        best = float(likelihood.scores(likelihood.shown(raw), truth).square().mean().sqrt())
    of = {"plain": 1.0, "free": result.temperature, "best": best}
    row: dict[str, Any] = {name: {"temperature": t, **result.evaluate(tested, temperature=t)} for name, t in of.items()}
    if likelihood.name == "categorical":
        for name, t in of.items():
            confidence, predicted = result.predict_dataset(tested, temperature=t).max(1)
            row[name]["reliability"] = reliability(confidence, predicted == truth)
    return row


def table(found: dict[str, dict[str, Any]]) -> None:
    """Print a row for each case."""
    print("| | accuracy | T, free | T, best | NLL, ECE: plain | free | best T |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for title, row in found.items():
        cells = [f"{of['nll']:.3f}" + (f", {of['ece']:.3f}" if "ece" in of else "") for of in row.values()]
        main = next(
            f"{row['plain'][name]:.1%}" for name in ("accuracy", "mean_average_precision", "r2") if name in row["plain"]
        )
        print(f"| {title} | {main} | {row['free']['temperature']:.2f} | {row['best']['temperature']:.2f}", end=" | ")
        print(" | ".join(cells), "|")


def picture(found: dict[str, dict[str, Any]], path: Path) -> None:
    """Draw reliability of the cases that fail: plain, with the free temperature, with the best one."""
    figure, panels = plt.subplots(
        1, len(FAILURES), figsize=(2.6 * len(FAILURES), 2.9), layout="constrained", sharey=True
    )
    for axes, title in zip(panels, FAILURES, strict=True):
        curves = {f"{name} T": row["reliability"] for name, row in found[title].items()}
        draw_reliability(axes, title.replace(", ", ",\n"), curves)
    panels[0].set_ylabel("accuracy")
    panels[0].legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--part", default="1/1")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keep_memory()
    part, parts = map(int, arguments.part.split("/"))
    files = {case.title: arguments.out / "cases" / (re.sub(r"\W+", "-", case.title) + ".json") for case in CASES}
    for case in CASES[part - 1 :: parts]:
        if not files[case.title].exists():
            write_json(files[case.title], measured(case, arguments.out))
            print(case.title, flush=True)
    found = {title: read_json(file) for title, file in files.items() if file.exists()}
    table(found)
    if all(title in found for title in FAILURES):
        picture(found, arguments.out / "failures.png")


if __name__ == "__main__":
    main()
