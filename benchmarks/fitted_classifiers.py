"""Fitted classifiers of texts: by pairs or by classes with a blend, and how large their margin should be.

    python benchmarks/fitted_classifiers.py train DATA TABLES OUT [--tasks trec10,films16] [--seeds 1] [--part 1/2]
    python benchmarks/fitted_classifiers.py table DATA TABLES OUT

DATA has the folders trec and agnews, TABLES the tables of `text_tasks.py`. `train` fine-tunes MiniLM on some texts of
each class by 200 steps of 32, in bfloat16 (autocast), by the default's rule or as the task says, and keeps features for
the training texts and for up to 1,000 other rows of the training table; no test set is used. `table` fits classifiers
with several margins to these features: accuracy as the run is left, and negative log-likelihood (NLL) and calibration
error (ECE) with the margin 10, with the rule of `usual_margin`, with the best margin and at the best temperature.
Both continue after an interruption. One thread.
"""

from __future__ import annotations

import argparse
import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from deelbo import finetune
from deelbo._memory import keep_memory
from deelbo._modules import eval_mode
from deelbo.likelihoods import Categorical
from deelbo.likelihoods.temperature import held_out_factor
from deelbo.metrics import measure
from deelbo.specs import DataSpec, ModelSpec
from deelbo.training.batches import in_order, network_output
from deelbo.training.last_layer import MARGIN, LastLayer, usual_margin
from deelbo.training.start import Start
from few_texts import divide

RATES = {True: (0.01,), False: (0.03,)}  # by pairs, by classes
MARGINS = (2.5, 3.5, 5.0, 6.0, 7.0, 8.5, 10.0, 12.0, 14.0)


@dataclass(frozen=True)
class Task:
    """Some texts of each class of a table, trained by pairs or by classes."""

    table: str
    per_class: int
    pairs: bool


TASKS = {
    f"{name}{number} by {'pairs' if pairs else 'classes'}": Task(name, number, pairs)
    for name, number, ways in [
        *[(name, 16, (True, False)) for name in ("films", "products")],
        *[("trec", 10, (True, False)), ("agnews", 8, (True, False))],
        *[(name, 10, (True, False)) for name in ("fortunes", "packages", "sections20")],
        ("sections", 5, (True, False)),
        *[(name, 50, (False,)) for name in ("films", "products", "editorials", "tweets", "trec")],
    ]
    for pairs in ways
}


def features(network: nn.Module, name: str, dataset: Dataset) -> Tensor:
    """Return the inputs of a network's classifier."""
    layer = network.get_submodule(name)
    assert isinstance(layer, nn.Linear)
    last = LastLayer(layer)
    with torch.no_grad(), eval_mode(network), torch.autocast("cpu", torch.bfloat16), last.features() as found:
        for inputs, _ in in_order(dataset, 32, torch.device("cpu")):
            network_output(network, inputs)
    return torch.cat(found)


def train(task: Task, seed: int, arguments: argparse.Namespace) -> dict[str, Tensor]:
    """Train a network, and return its features, its predictions and what was known before training."""
    table = arguments.data / task.table / "train.csv"
    table = table if table.exists() else arguments.tables / f"{task.table}.csv"
    data, others = divide(DataSpec(str(table)).read(), task.per_class, seed)
    network, reader = ModelSpec("offline:minilm", max_length=64).load(data, seed)
    train_set, other_set = reader.dataset(data.train), reader.dataset(others)
    settings: dict[str, Any] = {"steps": 200, "batch_size": 32, "learning_rates": RATES[task.pairs]}
    before = copy.deepcopy(network)
    result = finetune(
        network, train_set, device="cpu", precision="bf16", pairs=task.pairs, blend=None, seed=seed, **settings
    )
    start = Start(**result.start)
    found = {"y": torch.tensor(data.train.labels), "other_y": torch.tensor(others.labels)}
    found |= {"h": features(result.model, start.classifier, train_set)}
    found |= {"other_h": features(result.model, start.classifier, other_set)}
    found |= {"frozen": features(before, start.classifier, train_set)}
    found |= {"as_left": result.predict_dataset(other_set).log(), "blend": torch.tensor(result.blend)}
    return {**found, "information": torch.tensor(start.information or 0.0), "guessing": torch.tensor(start.guessing)}


def refitted(found: dict[str, Tensor], margin: float) -> Tensor:
    """Return the logits for the other rows of a classifier that is fitted with a margin."""
    classes = int(found["y"].max()) + 1
    last = LastLayer(nn.Linear(found["h"].shape[1], classes, dtype=torch.float64), margin)
    last.fit(found["h"], found["y"], Categorical())
    with torch.no_grad():
        return last.layer(found["other_h"].double())


def row(found: dict[str, Tensor]) -> str:
    """Return the cells of the table for one network."""
    y = found["other_y"]

    def cell(logits: Tensor) -> str:
        metrics = measure(Categorical(), logits.log_softmax(1), y)
        return f"{metrics['nll']:.3f}, {metrics['ece']:.3f}"

    rule = usual_margin(float(found["information"]))
    logits = {margin: refitted(found, margin) for margin in (*MARGINS, rule)}
    best = min(logits, key=lambda margin: float(Categorical()(logits[margin], y)))
    factor = held_out_factor(logits[MARGIN], y, Categorical())
    accuracy = measure(Categorical(), found["as_left"].double(), y)["accuracy"]
    share = float(found["information"] / found["guessing"])
    about = f"{int(found['y'].max()) + 1} | {len(found['y'])} | {float(found['information']):.2f} ({share:.0%}) "
    about += f"| {float(found['blend']):.2f} | {accuracy:.1%}"
    cells = [cell(logits[MARGIN]), f"{cell(logits[rule])} ({rule:.1f})", f"{cell(logits[best])} ({best:.1f})"]
    return f"{about} | {' | '.join(cells)} | {cell(factor * logits[MARGIN])} ({1 / factor:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["train", "table"])
    parser.add_argument("data", type=Path)
    parser.add_argument("tables", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tasks", default="", help="starts of names, such as trec10,films")
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--part", default="1/1")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keep_memory()
    part, parts = map(int, arguments.part.split("/"))
    wanted = [name for name in TASKS if name.startswith(tuple(arguments.tasks.split(",")))]
    chosen = [(name, seed) for seed in map(int, arguments.seeds.split(",")) for name in wanted][part - 1 :: parts]
    folder = arguments.out / "features"
    folder.mkdir(parents=True, exist_ok=True)
    print("| | classes | N | nats explained | blend | accuracy | NLL, ECE: margin 10 | the rule's | best | best T |")
    print(f"|{' --- |' * 10}")
    for name, seed in chosen:
        path = folder / f"{name}-{seed}.safetensors"
        if arguments.what == "train" and not path.exists():
            safetensors.torch.save_file(train(TASKS[name], seed, arguments), path)
        if path.exists():
            print(f"| {name}, set {seed} | {row(safetensors.torch.load_file(path))} |", flush=True)


if __name__ == "__main__":
    main()
