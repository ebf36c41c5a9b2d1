"""Ways to make probabilities right without a validation set, on the tasks of `small_data.py`.

    python benchmarks/calibration.py train DATA OUT [--cells trec10,pets5] [--part 1/2]
    python benchmarks/calibration.py folds DATA OUT [--cells trec10,pets5] [--part 1/2] [--seeds 1001]
    python benchmarks/calibration.py table DATA OUT [--cells trec10,pets5]
    python benchmarks/calibration.py picture DATA OUT [--cells digits10,cifar10,pets5,trec10]
    python benchmarks/calibration.py cases DATA OUT [--part 1/2]
    python benchmarks/calibration.py coverage DATA OUT [--part 1/2]

`train` makes the DE-ELBO run of each task and training set, with its record in OUT/records (as `small_data.py rivals`
does) and its network in OUT/networks. `folds` calibrates some of them by five folds, for as many steps. `table`
compares all contenders on the kept networks: negative log-likelihood (NLL) and calibration error (ECE) on the test set.
`picture` draws their reliability before and after into OUT/reliability.png. `cases` looks for failures of the free
temperature, on digits with other settings, labels and sizes. `coverage` measures prediction sets on 100 digits over 20
training sets, of a probe and of DE-ELBO, each with five folds. Parts can run in several processes, with one thread
each.
"""

from __future__ import annotations

import argparse
import math
import shutil
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from deelbo._files import read_json, write_json
from deelbo._modules import eval_mode
from deelbo.compare import Records
from deelbo.compare.problem import Trial
from deelbo.compare.running import read_data, run_trial
from deelbo.data import Data, Examples, split
from deelbo.finetuning import finetune
from deelbo.folds import FoldRuns
from deelbo.likelihoods import Categorical
from deelbo.likelihoods.temperature import held_out_factor, training_set_factor
from deelbo.metrics import compute_metrics
from deelbo.report.views.base import reliability
from deelbo.result import Result, load
from deelbo.specs import ModelSpec
from deelbo.training.batches import in_order, labels_of, network_output
from deelbo.training.device import Execution
from deelbo.training.ridge import effective_dimension, fit_ridge
from deelbo.training.sets import TrainingSets
from deelbo.training.start import Starter
from small_data import CELLS, comparisons

DRAWS = 10
ALPHAS = (0.2, 0.1, 0.05)


def trials(cells: list[str], data: Path, out: Path) -> Iterator[tuple[str, Trial]]:
    """Yield the DE-ELBO run of each task and training set, with a name."""
    for cell in cells:
        _, found = next(comparisons(cell, data, out))
        for entry in found.entries:
            trial = entry.plan().trials[0]
            yield f"{cell}-{trial.settings.seed}", trial


def train(name: str, trial: Trial, out: Path) -> None:
    """Make a run and keep its folder, unless it is there or another process makes it."""
    kept, records = out / "networks" / name, Records(out / "records")
    if kept.exists():
        return
    with records.claim(trial.key) as mine:
        if not mine:
            return
        record = run_trial(trial, records, device="cpu")
        shutil.copytree(records.work(trial.key), kept.with_suffix(".part"), dirs_exist_ok=True)
        kept.with_suffix(".part").rename(kept)
        records.put(trial.key, records.get(trial.key) or record)
        print(name, record["learning_rate"], record["test"], flush=True)


@dataclass
class Kept:
    """A kept run with what it was trained and tested on."""

    result: Result
    before: nn.Module
    sets: TrainingSets
    test: Dataset


def read_kept(name: str, trial: Trial, out: Path) -> Kept:
    """Read a kept run, its pretrained network and its data."""
    data = read_data(replace(trial.data_spec, train_size=None), trial.test_size)
    data = split(data, trial.data_spec.train_size, None, trial.settings.seed)
    network, reader = trial.model_spec.load(data, trial.settings.seed)
    before, _ = trial.model_spec.load(data, trial.settings.seed)
    sets = TrainingSets(*reader.training_sets(data.train, False, None, trial.data_spec.flip))
    assert data.test is not None
    return Kept(load(out / "networks" / name, network), before, sets, reader.dataset(data.test))


def train_folds(name: str, trial: Trial, out: Path) -> None:
    """Calibrate a kept run by five folds, each trained for as many steps, unless it was done."""
    path = out / "networks" / f"{name}.folds.json"
    if path.exists() or not (out / "networks" / name).exists():
        return
    kept = read_kept(name, trial, out)
    found = FoldRuns(kept.result, kept.before, kept.sets, 5, execution=Execution("cpu")).calibrate()
    write_json(path, found.as_dict())
    print(name, found.describe(), found.unseen, flush=True)


@torch.no_grad()
def outputs(network: nn.Module, layer: nn.Linear, dataset: Dataset) -> tuple[Tensor, Tensor]:
    """Return inputs and outputs of the last layer."""
    features: list[Tensor] = []
    logits: list[Tensor] = []
    hook = layer.register_forward_pre_hook(lambda _, inputs: features.append(inputs[0].clone()))
    with eval_mode(network):
        for inputs, _ in in_order(dataset, 64, torch.device("cpu")):
            logits.append(network_output(network, inputs))
    hook.remove()
    return torch.cat(features), torch.cat(logits)


def last_layer(network: nn.Module, kept: Kept, num_classes: int) -> nn.Linear:
    """Return the classifier of a network."""
    starter = Starter(network, Categorical(), lambda: in_order(kept.sets.plain, 32, torch.device("cpu")), num_classes)
    layer = starter._classifier(network)
    assert layer is not None
    return layer


def observe(name: str, trial: Trial, out: Path) -> dict[str, Tensor]:
    """Return features and logits of a kept run for training and test examples; computed once."""
    path = out / "networks" / f"{name}.safetensors"
    if path.exists():
        return safetensors.torch.load_file(path)
    kept = read_kept(name, trial, out)
    network, seen = kept.result.model, {"train_y": labels_of(kept.sets.plain), "test_y": labels_of(kept.test)}
    classes = int(seen["train_y"].max()) + 1
    layer = last_layer(network, kept, classes)
    seen["frozen"], _ = outputs(kept.before, last_layer(kept.before, kept, classes), kept.sets.plain)
    seen["train_h"], seen["train_z"] = outputs(network, layer, kept.sets.plain)
    seen["test_h"], seen["test_z"] = outputs(network, layer, kept.test)
    draws = []
    assert kept.result.posterior is not None
    for seed in range(DRAWS):
        with kept.result.posterior.sample(seed=seed):
            draws.append(outputs(network, layer, kept.test)[1])
    seen["draws"], seen["V"] = torch.stack(draws), layer.weight.detach().clone()
    seen["tau"] = torch.tensor(kept.result.prior_variances["head"], dtype=torch.float64)
    safetensors.torch.save_file(seen, path)
    return seen


def dimension(features: Tensor) -> float:
    """Return the effective dimension of features."""
    centred = features.double() - features.double().mean(0)
    return effective_dimension(torch.linalg.svdvals(centred).square(), len(features))


def laplace_last_layer(seen: dict[str, Tensor]) -> Tensor:
    r"""Return probabilities under Laplace's approximation over the last layer with the learned tau.

    The Hessian of a class is sum_j w_j h_j h_j^T + I / tau, with w the mean of p (1 - p) over classes; logits are
    divided by sqrt(1 + pi/8 variance) (MacKay).
    """
    h, tested, tau = seen["train_h"].double(), seen["test_h"].double(), float(seen["tau"])
    p = seen["train_z"].double().softmax(1)
    root = (p * (1 - p)).mean(1).sqrt()[:, None] * h
    inner = torch.linalg.inv(torch.eye(len(h), dtype=torch.float64) + tau * root @ root.T)
    cross = tested @ root.T
    variance = tau * tested.square().sum(1) - tau**2 * ((cross @ inner) * cross).sum(1)
    return (seen["test_z"].double() / (1 + math.pi / 8 * variance[:, None]).sqrt()).softmax(1)


def contenders(seen: dict[str, Tensor], folds: dict[str, Any] | None) -> dict[str, tuple[Tensor, float | None]]:
    """Return the test probabilities of each contender, and its temperature if it has one."""
    likelihood = Categorical()
    z, y, tested, labels = seen["train_z"].double(), seen["train_y"], seen["test_z"].double(), seen["test_y"]
    pull = dimension(seen["frozen"]) / len(y)
    share = float(seen["V"].square().sum()) / (seen["V"].numel() * float(seen["tau"]))
    factors = {
        "as it is": 1.0,
        "training set, D_e / N (deelbo's)": min(1.0, training_set_factor(z, y, likelihood, pull)),
        "training set, D_h / N": training_set_factor(z, y, likelihood, share),
        "best temperature (by the test set)": held_out_factor(tested, labels, likelihood),
    }
    if folds is not None:
        factors["five folds"] = 1 / folds["temperature"]
    found: dict[str, tuple[Tensor, float | None]] = {
        name: ((factor * tested).softmax(1), 1 / factor) for name, factor in factors.items()
    }
    found["average of 10 draws"] = seen["draws"].double().softmax(2).mean(0), None
    found["Laplace, last layer"] = laplace_last_layer(seen), None
    ridge = fit_ridge(seen["train_h"], y, likelihood, z.shape[1])
    head = seen["test_h"].double() @ ridge.weight.T + ridge.bias
    found["new classifier on the trained features, leave-one-out"] = head.softmax(1), None
    return found


def table(cells: list[str], data: Path, out: Path) -> None:
    """Print every contender on every kept network, then counts."""
    rows: dict[str, list[tuple[float, float, float, float]]] = {}
    for name, trial in trials(cells, data, out):
        if not (out / "networks" / name).exists():
            continue
        seen = observe(name, trial, out)
        path = out / "networks" / f"{name}.folds.json"
        found = contenders(seen, read_json(path) if path.exists() else None)
        metrics = {title: compute_metrics("categorical", p, seen["test_y"]) for title, (p, _) in found.items()}
        best, plain = metrics["best temperature (by the test set)"], metrics["as it is"]
        about = f"N {len(seen['train_y'])}, accuracy {plain['accuracy']:.1%}, D_e {dimension(seen['frozen']):.0f}"
        print(f"\n{name}: {about}")
        for title, (_, temperature) in found.items():
            nll, ece = metrics[title]["nll"], metrics[title]["ece"]
            rows.setdefault(title, []).append((nll / best["nll"] - 1, nll / plain["nll"] - 1, ece, nll))
            shown = "    " if temperature is None else f"{temperature:4.2f}"
            print(f"  {title:55} T {shown}  NLL {nll:.3f} ({nll / best['nll'] - 1:+.1%})  ECE {ece:.3f}", flush=True)
    above = "NLL above the best temperature's: median, largest | within 5 %"
    print(f"\n| | networks | mean NLL | {above} | over 3 % worse than as it is | mean ECE | ECE at most 0.05 |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for title, values in rows.items():
        over, worse, errors, losses = zip(*values, strict=True)
        shown = f"{statistics.mean(losses):.3f} | {statistics.median(over):.1%}, {max(over):.1%}"
        counts = sum(v <= 0.05 for v in over), sum(v > 0.03 for v in worse), sum(v <= 0.05 for v in errors)
        print(
            f"| {title} | {len(values)} | {shown} | {counts[0]} | {counts[1]} | "
            f"{statistics.mean(errors):.3f} | {counts[2]} |"
        )


def picture(cells: list[str], data: Path, out: Path) -> None:
    """Draw reliability of the plain and of the calibrated networks, over the training sets of each task together."""
    figure, panels = plt.subplots(1, len(cells), figsize=(2.6 * len(cells), 2.9), layout="constrained", sharey=True)
    for cell, axes in zip(cells, panels, strict=True):
        found: dict[str, list[tuple[Tensor, Tensor]]] = {}
        for name, trial in trials([cell], data, out):
            seen = observe(name, trial, out)
            for title, (probabilities, _) in contenders(seen, None).items():
                found.setdefault(title, []).append((probabilities, seen["test_y"]))
        axes.plot([0, 1], [0, 1], color="0.6", linestyle="--", linewidth=1)
        for title, label, colour in (
            ("as it is", "plain", "tab:orange"),
            ("training set, D_e / N (deelbo's)", "calibrated", "tab:blue"),
        ):
            probabilities, labels = (torch.cat(part) for part in zip(*found[title], strict=True))
            confidence, predicted = probabilities.max(1)
            rows = [row for row in reliability(confidence, predicted == labels) if row["examples"] >= 10]
            points = [row["confidence"] for row in rows], [row["accuracy"] for row in rows]
            axes.plot(*points, "o-", markersize=3, color=colour, label=label)
        axes.set(title=cell, xlabel="confidence", xlim=(0, 1.03), ylim=(0, 1.03))
    panels[0].set_ylabel("accuracy")
    panels[0].legend(frameon=False)
    figure.savefig(out / "reliability.png", dpi=100)


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
    data_spec, model_spec = CELLS["digits10"].specs(arguments.data, arguments.out)
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
    data_spec, model_spec = CELLS["digits10"].specs(arguments.data, arguments.out)
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


def each(arguments: argparse.Namespace, work: Callable[[str, Trial, Path], None]) -> None:
    """Do some work for each run of this process's part."""
    part, parts = map(int, arguments.part.split("/"))
    seeds = [int(seed) for seed in arguments.seeds.split(",")] if arguments.seeds else None
    found = [
        (name, trial)
        for name, trial in trials(arguments.cells.split(","), arguments.data, arguments.out)
        if seeds is None or trial.settings.seed in seeds
    ]
    for name, trial in found[part - 1 :: parts]:
        work(name, trial, arguments.out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["train", "folds", "table", "picture", "cases", "coverage"])
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--cells", default=",".join(CELLS))
    parser.add_argument("--seeds", default="")
    parser.add_argument("--part", default="1/1")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.what == "table":
        table(arguments.cells.split(","), arguments.data, arguments.out)
    elif arguments.what == "picture":
        picture(arguments.cells.split(","), arguments.data, arguments.out)
    elif arguments.what in ("cases", "coverage"):
        {"cases": cases, "coverage": coverage}[arguments.what](arguments)
    else:
        each(arguments, {"train": train, "folds": train_folds}[arguments.what])


if __name__ == "__main__":
    main()
