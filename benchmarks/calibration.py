"""Ways to make probabilities right, with and without held-out data, on the tasks of `small_data.py`.

    python benchmarks/calibration.py train DATA OUT [--cells trec10,pets5] [--part 1/2]
    python benchmarks/calibration.py folds DATA OUT [--cells trec10,pets5] [--part 1/2] [--seeds 1001] [--folds 1]
    python benchmarks/calibration.py default DATA OUT [--cells trec10,agnews8] [--part 1/2]
    python benchmarks/calibration.py other DATA OUT [--cells trec10,pets5] [--part 1/2] [--seeds 1001]
    python benchmarks/calibration.py linearise DATA OUT [--cells trec10,pets5] [--part 1/2] [--seeds 1001]
    python benchmarks/calibration.py table DATA OUT [--cells trec10,pets5] [--seeds 1001]
    python benchmarks/calibration.py picture DATA OUT [--cells digits10,cifar10,pets5,trec10]

`train` makes the DE-ELBO run of each task and training set, by classes (without pairs or a blend), with its record in
OUT/records and its network in OUT/networks. `folds` trains again without the first fifth of the training set (`--folds
1`), or without each of five. `default` makes of each network of texts what the default does: a blend, or for few texts
another network, trained by pairs. `other` averages draws, trains again with label smoothing, and looks at early
networks of the same run; `linearise` is for Laplace's approximation over all weights, some minutes for each network.
`table` compares all contenders that there are: negative log-likelihood (NLL) and calibration error (ECE) on the test
set; the first time it also computes what contenders need of each network, some minutes each. `picture` draws
reliability before and after into OUT/reliability.png. All of it continues after an interruption. Parts can run in
several processes, with one thread each.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import torch
from torch import Tensor

from calibration_contenders import BEFORE, BEST, DEELBO, HEAD, LEFT, LEFT_BEST, PLAIN, contenders, dimension
from calibration_networks import Kept, observe, observe_default, observe_linearised, observe_other, read_kept
from deelbo._memory import keep_memory
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
TEST = {"cifar10": 2000, "pets": 1110}  # test examples, where there are more than in `small_data.py`


def trials(arguments: argparse.Namespace) -> Iterator[tuple[str, Trial]]:
    """Yield the DE-ELBO run of each task and training set, with a name."""
    wanted = [int(seed) for seed in arguments.seeds.split(",")] if arguments.seeds else SEEDS
    options = Options(methods=("de-elbo",), settings={**STEPS, "pairs": False, "blend": 1.0}, learning_rates=RATES)
    for cell in arguments.cells.split(","):
        test = TEST.get(CELLS[cell].data)
        for entry in comparison(cell, arguments.data, arguments.out, options, None, SEEDS, test).entries:
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


def make_default(name: str, trial: Trial, arguments: argparse.Namespace) -> None:
    """Make of a kept network of texts what the default does, unless it was done."""
    if (arguments.out / "networks" / name).exists() and trial.model_spec.max_length is not None:
        observe_default(name, trial, arguments.out)
        print(name, flush=True)


def train_other(name: str, trial: Trial, arguments: argparse.Namespace) -> None:
    """Train a kept run again in other ways, unless it was done."""
    if (arguments.out / "networks" / name).exists():
        observe_other(name, trial, arguments.out)
        print(name, flush=True)


def linearise(name: str, trial: Trial, arguments: argparse.Namespace) -> None:
    """Linearise a kept network, unless it was done."""
    if (arguments.out / "networks" / name).exists():
        observe_linearised(name, trial, arguments.out)
        print(name, flush=True)


@dataclass
class Network:
    """What was found on one kept network: temperature (or none) and metrics of each contender, and facts about it."""

    name: str
    number: int
    dimension: float
    sampling_ece: float  # that right probabilities would have on so few test examples
    temperatures: dict[str, float | None]
    metrics: dict[str, dict[str, float]]

    def nll(self, title: str) -> float:
        return self.metrics[title]["nll"]

    def above(self, title: str, other: str) -> float:
        """Return by which share a contender's NLL is above another's."""
        return self.nll(title) / self.nll(other) - 1


def compared(name: str, trial: Trial, out: Path) -> Network:
    """Compare all contenders on one kept network."""
    seen = observe(name, trial, out)
    found = contenders(seen, name, out)
    metrics = {title: measure(Categorical(), p, seen["test_y"]) for title, (p, _) in found.items()}
    generator = torch.Generator().manual_seed(0)
    logarithms = found[DEELBO][0]
    drawn = [torch.multinomial(logarithms.exp(), 1, generator=generator)[:, 0] for _ in range(20)]
    return Network(
        name=name,
        number=len(seen["train_y"]),
        dimension=dimension(seen["frozen"]),
        sampling_ece=statistics.mean(measure(Categorical(), logarithms, labels)["ece"] for labels in drawn),
        temperatures={title: t for title, (_, t) in found.items()},
        metrics=metrics,
    )


def table(arguments: argparse.Namespace) -> None:
    """Print every contender on every kept network, then a row for each task, and one for each contender."""
    networks = []
    for name, trial in trials(arguments):
        if not (arguments.out / "networks" / name).exists():
            continue
        network = compared(name, trial, arguments.out)
        networks.append(network)
        print(f"\n{name}: N {network.number}, D_e {network.dimension:.0f}")
        for title, temperature in network.temperatures.items():
            shown = "    " if temperature is None else f"{temperature:4.2f}"
            of = network.metrics[title]
            above = network.above(title, BEST)
            print(f"  {title:55} T {shown}  accuracy {of['accuracy']:.1%}  ", end="")
            print(f"NLL {of['nll']:.3f} ({above:+.1%})  ECE {of['ece']:.3f}")
    print_tasks(networks)
    print_contenders(networks)


def mean(networks: list[Network], title: str, metric: str) -> float:
    """Return the mean of a contender's metric over networks."""
    return statistics.mean(network.metrics[title][metric] for network in networks)


def print_tasks(networks: list[Network]) -> None:
    """Print a row for each task: means over its training sets."""
    print("\n| | N | D_e | accuracy, % | T: free, best | NLL: plain | free | rule before | D_h / N | best T ", end="")
    print("| ECE: plain | free | best T | by chance | as the default leaves it: accuracy, NLL, with its best T, ECE |")
    print("| --- " * 15 + "|")
    for cell in dict.fromkeys(network.name.rpartition("-")[0] for network in networks):
        of = [network for network in networks if network.name.rpartition("-")[0] == cell]
        free, best = (statistics.mean(n.temperatures[title] or 0.0 for n in of) for title in (DEELBO, BEST))
        about = f"{of[0].number} | {statistics.mean(n.dimension for n in of):.0f} "
        about += f"| {100 * mean(of, PLAIN, 'accuracy'):.1f} | {free:.2f}, {best:.2f}"
        nlls = " | ".join(f"{mean(of, title, 'nll'):.3f}" for title in (PLAIN, DEELBO, BEFORE, HEAD, BEST))
        eces = " | ".join(f"{mean(of, title, 'ece'):.3f}" for title in (PLAIN, DEELBO, BEST))
        left = f"{mean(of, LEFT, 'accuracy'):.1%}, {mean(of, LEFT, 'nll'):.3f}, {mean(of, LEFT_BEST, 'nll'):.3f}, "
        chance = statistics.mean(n.sampling_ece for n in of)
        print(f"| {cell} ({len(of)}) | {about} | {nlls} | {eces} | {chance:.3f} | {left}{mean(of, LEFT, 'ece'):.3f} |")


def print_contenders(networks: list[Network]) -> None:
    """Print a row for each contender: over the networks that it was tried on, beside deelbo's on the same."""
    print("\n| | networks | mean accuracy, NLL | deelbo's there | NLL above the best temperature's: median, ", end="")
    print("largest | within 5 % | over 3 % worse than as it is | better than deelbo's | mean ECE | at most 0.05 |")
    print("| --- " * 10 + "|")
    for title in dict.fromkeys(title for network in networks for title in network.metrics):
        of = [network for network in networks if title in network.metrics]
        above = [network.above(title, BEST) for network in of]
        cells = [
            *(f"{mean(of, name, 'accuracy'):.1%}, {mean(of, name, 'nll'):.3f}" for name in (title, DEELBO)),
            f"{statistics.median(above):.1%}, {max(above):.1%}",
            sum(share <= 0.05 for share in above),
            sum(network.above(title, PLAIN) > 0.03 for network in of),
            sum(network.nll(title) < network.nll(DEELBO) for network in of),
            f"{mean(of, title, 'ece'):.3f}",
            sum(network.metrics[title]["ece"] <= 0.05 for network in of),
        ]
        print(f"| {title} | {len(of)} | " + " | ".join(map(str, cells)) + " |")


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
        curves = {}
        for title, label in ((PLAIN, "plain"), (DEELBO, "calibrated")):
            probabilities, labels = (torch.cat(part) for part in zip(*of[title], strict=True))
            confidence, predicted = probabilities.max(1)
            curves[label] = reliability(confidence, predicted == labels)
        draw_reliability(axes, cell, curves)
    panels[0, 0].set_ylabel("accuracy")
    panels[0, 0].legend(frameon=False)
    figure.savefig(arguments.out / "reliability.png", dpi=100)


def draw_reliability(axes: Any, title: str, curves: dict[str, list[dict[str, Any]]]) -> None:
    """Draw accuracy over confidence, for each of some ways; bins with fewer than ten examples are left out."""
    axes.plot([0, 1], [0, 1], color="0.6", linestyle="--", linewidth=1)
    for (label, bins), colour in zip(curves.items(), ("tab:orange", "tab:blue", "tab:green"), strict=False):
        rows = [row for row in bins if row["examples"] >= 10]
        points = [row["confidence"] for row in rows], [row["accuracy"] for row in rows]
        axes.plot(*points, "o-", markersize=3, color=colour, label=label)
    axes.set_title(title, fontsize=9)
    axes.set(xlabel="confidence", xlim=(0, 1.03), ylim=(0, 1.03))


def each(arguments: argparse.Namespace, work: Callable[[str, Trial, argparse.Namespace], None]) -> None:
    """Do some work for each run of this process's part."""
    part, parts = map(int, arguments.part.split("/"))
    for name, trial in list(trials(arguments))[part - 1 :: parts]:
        work(name, trial, arguments)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["train", "folds", "default", "other", "linearise", "table", "picture"])
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--cells", default=",".join(CELLS))
    parser.add_argument("--seeds", default="")
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--folds", type=int, default=FOLDS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keep_memory()
    if arguments.what in ("table", "picture"):
        {"table": table, "picture": picture}[arguments.what](arguments)
    else:
        work = {"train": train, "folds": train_folds, "default": make_default, "other": train_other}
        each(arguments, (work | {"linearise": linearise})[arguments.what])


if __name__ == "__main__":
    main()
