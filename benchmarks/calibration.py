"""Ways to make probabilities right, with and without held-out data, on the tasks of `small_data.py`.

    python benchmarks/calibration.py train DATA OUT [--cells trec10,pets5] [--part 1/2]
    python benchmarks/calibration.py folds DATA OUT [--cells trec10,pets5] [--part 1/2] [--seeds 1001] [--folds 1]
    python benchmarks/calibration.py other DATA OUT [--cells trec10,pets5] [--part 1/2] [--seeds 1001]
    python benchmarks/calibration.py table DATA OUT [--cells trec10,pets5] [--seeds 1001]
    python benchmarks/calibration.py picture DATA OUT [--cells digits10,cifar10,pets5,trec10]

`train` makes the DE-ELBO run of each task and training set, by classes (without pairs), with its record in OUT/records
and its network in OUT/networks. `folds` trains again without the first fifth of the training set (`--folds 1`), or
without each of five. `other` trains again with label smoothing, and looks at early networks of the same run. `table`
compares all contenders that there are: negative log-likelihood (NLL) and calibration error (ECE) on the test set; the
first time it also computes what contenders need of each network, some minutes each. `picture` draws reliability before
and after into OUT/reliability.png. All of it continues after an interruption. Parts can run in several processes, with
one thread each.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import Tensor

from calibration_contenders import (
    BEST,
    DEELBO,
    PLAIN,
    Kept,
    contenders,
    dimension,
    observe,
    observe_other,
    read_kept,
)
from deelbo.compare import Options, Records
from deelbo.compare.problem import Trial
from deelbo.compare.running import run_trial
from deelbo.folds import FoldRuns
from deelbo.likelihoods import Categorical
from deelbo.metrics import measure
from deelbo.report.views.base import reliability
from deelbo.run_folder import RunFolder
from deelbo.training.device import Execution
from small_data import CELLS, RATES, SEEDS, STEPS, comparison

FOLDS = 5


def trials(arguments: argparse.Namespace) -> Iterator[tuple[str, Trial]]:
    """Yield the DE-ELBO run of each task and training set, with a name."""
    wanted = [int(seed) for seed in arguments.seeds.split(",")] if arguments.seeds else SEEDS
    options = Options(methods=("de-elbo",), settings={**STEPS, "pairs": False}, learning_rates=RATES)
    for cell in arguments.cells.split(","):
        for entry in comparison(cell, arguments.data, arguments.out, options, None, SEEDS).entries:
            trial = entry.plan().trials[0]
            if trial.settings.seed in wanted:
                yield f"{cell}-{trial.settings.seed}", trial


def train(name: str, trial: Trial, arguments: argparse.Namespace) -> None:
    """Make a run and keep its folder, unless it is there or another process makes it."""
    kept, records = arguments.out / "networks" / name, Records(arguments.out / "records")
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


def fold_runs(kept: Kept) -> FoldRuns:
    """Return the folds of a kept run; their results are kept in its folder."""
    folder, execution = RunFolder(kept.path), Execution("cpu", kept.precision)
    return FoldRuns(kept.result, kept.before, kept.sets, FOLDS, folder=folder, execution=execution)


def train_folds(name: str, trial: Trial, arguments: argparse.Namespace) -> None:
    """Train without each of the first folds of a kept run, unless it was done."""
    if (arguments.out / "networks" / name).exists():
        runs = fold_runs(read_kept(name, trial, arguments.out))
        for k in range(arguments.folds):
            found = runs.left_out(k)
            right = float((found["outputs"].argmax(1) == found["targets"]).double().mean())
            print(f"{name}, fold {k}: {len(found['targets'])} examples, {right:.1%} right", flush=True)


def train_other(name: str, trial: Trial, arguments: argparse.Namespace) -> None:
    """Train a kept run again in other ways, unless it was done."""
    if (arguments.out / "networks" / name).exists():
        observe_other(name, trial, arguments.out)
        print(name, flush=True)


def table(arguments: argparse.Namespace) -> None:
    """Print every contender on every kept network, then counts."""
    rows: dict[str, list[tuple[float, float, float, float]]] = {}
    for name, trial in trials(arguments):
        if not (arguments.out / "networks" / name).exists():
            continue
        seen = observe(name, trial, arguments.out)
        found = contenders(seen, name, arguments.out)
        metrics = {title: measure(Categorical(), p, seen["test_y"]) for title, (p, _) in found.items()}
        best, plain = metrics[BEST], metrics[PLAIN]
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


def picture(arguments: argparse.Namespace) -> None:
    """Draw reliability of the plain and of the calibrated networks, over the training sets of each task together."""
    found: dict[str, dict[str, list[tuple[Tensor, Tensor]]]] = {}
    for name, trial in trials(arguments):
        seen = observe(name, trial, arguments.out)
        of = found.setdefault(name.rpartition("-")[0], {})
        for title, (logarithms, _) in contenders(seen, name, arguments.out).items():
            of.setdefault(title, []).append((logarithms.exp(), seen["test_y"]))
    size = 2.6 * len(found), 2.9
    figure, panels = plt.subplots(1, len(found), figsize=size, layout="constrained", sharey=True, squeeze=False)
    for (cell, of), axes in zip(found.items(), panels[0], strict=True):
        axes.plot([0, 1], [0, 1], color="0.6", linestyle="--", linewidth=1)
        for title, label, colour in ((PLAIN, "plain", "tab:orange"), (DEELBO, "calibrated", "tab:blue")):
            probabilities, labels = (torch.cat(part) for part in zip(*of[title], strict=True))
            confidence, predicted = probabilities.max(1)
            rows = [row for row in reliability(confidence, predicted == labels) if row["examples"] >= 10]
            points = [row["confidence"] for row in rows], [row["accuracy"] for row in rows]
            axes.plot(*points, "o-", markersize=3, color=colour, label=label)
        axes.set(title=cell, xlabel="confidence", xlim=(0, 1.03), ylim=(0, 1.03))
    panels[0, 0].set_ylabel("accuracy")
    panels[0, 0].legend(frameon=False)
    figure.savefig(arguments.out / "reliability.png", dpi=100)


def each(arguments: argparse.Namespace, work: Callable[[str, Trial, argparse.Namespace], None]) -> None:
    """Do some work for each run of this process's part."""
    part, parts = map(int, arguments.part.split("/"))
    for name, trial in list(trials(arguments))[part - 1 :: parts]:
        work(name, trial, arguments)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["train", "folds", "other", "table", "picture"])
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--cells", default=",".join(CELLS))
    parser.add_argument("--seeds", default="")
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--folds", type=int, default=FOLDS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.what in ("table", "picture"):
        {"table": table, "picture": picture}[arguments.what](arguments)
    else:
        each(arguments, {"train": train, "folds": train_folds, "other": train_other}[arguments.what])


if __name__ == "__main__":
    main()
