"""Dropout and drop-path of pretrained networks, on or off: compared on training rows that are not trained on.

    python benchmarks/dropout.py DATA TABLES OUT [--seeds 1] [--tasks digits,films] [--part 1/2]

DATA has the folders trec, pets and cifar10; TABLES the tables of `text_tasks.py`; the digits are scikit-learn's. Each
task is a network with some examples of each class; the rate is 0.03 (0.01 by pairs), 200 steps of 32, no test set is
used. Two runs a pair, which differ in `dropout` alone. What was found is kept in OUT/dropout, so an interrupted
measurement continues. Parts can run in several processes, one thread each.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import dataclass
from pathlib import Path

import torch

from deelbo import finetune
from deelbo._files import read_json, write_json
from deelbo._memory import keep_memory
from deelbo.cli.quickstart import write_digits
from deelbo.specs import DataSpec, ModelSpec
from few_texts import divide


@dataclass(frozen=True)
class Task:
    """A network, a dataset and a number of training examples for each class."""

    network: str
    data: str
    per_class: int
    size: int | None = None  # of images, in pixels; None for texts


TASKS = {
    "digits, Lite1": Task("efficientnet_lite1", "digits", 10, 32),
    "CIFAR-10, Lite1": Task("efficientnet_lite1", "cifar10", 10, 64),
    "digits, Lite2": Task("efficientnet_lite2", "digits", 10, 32),
    "Pets, Lite2": Task("efficientnet_lite2", "pets", 5, 64),
    "TREC by pairs": Task("minilm", "trec", 10),
    "films by pairs": Task("minilm", "films", 16),
    "fortunes": Task("minilm", "fortunes", 30),
    "packages": Task("minilm", "packages", 30),
}


def measured(task: Task, arguments: argparse.Namespace, seed: int, dropout: bool) -> dict[str, float]:
    """Train one run, and return its metrics on other training rows."""
    text = task.size is None
    if task.data == "digits":
        source = write_digits(arguments.out / "digits", 1000, 600)
    elif text:
        table = arguments.data / task.data / "train.csv"
        source = table if table.exists() else arguments.tables / f"{task.data}.csv"
    else:
        source = arguments.data / task.data
    data, others = divide(DataSpec(str(source)).read(), task.per_class, seed)
    network, reader = ModelSpec(f"offline:{task.network}", image_size=task.size, max_length=64).load(data, seed)
    augmented, plain = reader.training_sets(data.train, False, None, task.data != "digits")
    result = finetune(
        network,
        augmented,
        plain_train_set=plain,
        device="cpu",
        precision="bf16" if text else "no",
        steps=200,
        batch_size=32,
        learning_rates=(0.01 if text and task.per_class <= 20 else 0.03,),
        dropout=dropout,
        seed=seed,
    )
    return result.evaluate(reader.dataset(others))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("tables", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--tasks", default="", help="words, such as Lite2,TREC")
    parser.add_argument("--part", default="1/1")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keep_memory()
    part, parts = map(int, arguments.part.split("/"))
    wanted = [name for name in TASKS if any(word in name for word in arguments.tasks.split(","))]
    pairs = [(name, int(seed)) for seed in arguments.seeds.split(",") for name in wanted]
    print("| | seed | with: accuracy, NLL | without |\n| --- | --- | --- | --- |")
    gains = []
    for name, seed in pairs[part - 1 :: parts]:
        found = []
        for dropout in (True, False):
            path = arguments.out / "dropout" / f"{name}-{seed}-{dropout}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                write_json(path, measured(TASKS[name], arguments, seed, dropout))
            found.append(read_json(path))
        gains.append(found[1]["accuracy"] - found[0]["accuracy"])
        cells = [f"{row['accuracy']:.1%}, {row['nll']:.3f}" for row in found]
        print(f"| {name} | {seed} | {cells[0]} | {cells[1]} |", flush=True)
    print(f"without dropout: {100 * statistics.mean(gains):+.1f} points, better in {sum(g > 0 for g in gains)}")


if __name__ == "__main__":
    main()
