"""On what the pull of the free temperature should depend: forms of it, compared on kept networks.

    python benchmarks/temperature_pull.py IMAGES CALIBRATION

IMAGES is the OUT of `image_tasks.py train`, CALIBRATION that of `calibration.py train` and `table`; networks that were
trained after the rule was chosen are left out. A form has one constant, which is fitted to all tasks but one, for each
task in turn: the constant with the smallest mean, over tasks and their training sets, of the share by which the
negative log-likelihood (NLL) on new examples is above the best temperature's (at most a half). The table shows this
share on the tasks that were left out, without and with the bound on confidence.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from calibration_contenders import dimension, known_before
from deelbo.likelihoods import Categorical
from deelbo.likelihoods.temperature import confident_factor, held_out_factor, training_set_factor
from deelbo.training.start import Start
from image_tasks import CHOSEN_ON

CONSTANTS = np.logspace(-4, 2, 97)
PULLS = np.logspace(-3.5, 2, 67)
MOST = 0.5
LEAST_NLL = 0.1  # of the best temperature: where fewer are wrong, one example decides


@dataclass(frozen=True)
class Network:
    """What a form may know of a network, and how good each factor of its logits is."""

    task: str
    N: int
    D: float
    information: float  # I, in nats
    R: float
    F: float
    start: Start
    logits: Tensor
    labels: Tensor
    new_logits: Tensor
    new_labels: Tensor

    def above(self, bound: bool) -> np.ndarray:
        """Return by which share the NLL with each of the pulls is above that of the best temperature."""
        likelihood, found = Categorical(), []
        left_out = (self.N * self.start.frozen_features["accuracy"] + 1) / (self.N + 2)
        best = held_out_factor(self.new_logits, self.new_labels, likelihood)
        least = float(likelihood(best * self.new_logits, self.new_labels))
        for pull in PULLS:
            factor = min(1.0, training_set_factor(self.logits, self.labels, likelihood, float(pull)))
            if bound:
                factor = confident_factor(self.logits, factor, left_out)
            nll = float(likelihood(factor * self.new_logits, self.new_labels))
            found.append(min(MOST, (nll - least) / max(least, LEAST_NLL)))
        return np.array(found)


Form = Callable[[Network], float]
FORMS: dict[str, Form] = {
    "the same for all": lambda n: 1,
    "D_e / N": lambda n: n.D / n.N,
    "D_e / N^(1/2)": lambda n: n.D / math.sqrt(n.N),
    "D_e^(3/4)": lambda n: n.D**0.75,
    "1 / R^2": lambda n: 1 / n.R**2,
    "(F / R)^2": lambda n: (n.F / n.R) ** 2,
    "D_e^(3/4) / R^2": lambda n: n.D**0.75 / n.R**2,
    "D_e^(3/4) (F / I)^2, I in nats, at least 0.3": lambda n: n.D**0.75 * (n.F / max(n.information, 0.3)) ** 2,
    "D_e^(3/4) (F / R)^2": lambda n: n.D**0.75 * (n.F / n.R) ** 2,
    "D_e (F / R)^2": lambda n: n.D * (n.F / n.R) ** 2,
    "D_e^(1/2) (F / R)^2": lambda n: n.D**0.5 * (n.F / n.R) ** 2,
    "D_e^(3/4) F^2 / R": lambda n: n.D**0.75 * n.F**2 / n.R,
    "D_e^(3/4) (F / R)^2 / N^(1/4)": lambda n: n.D**0.75 * (n.F / n.R) ** 2 / n.N**0.25,
}


def network(task: str, start: Start, logits: Tensor, labels: Tensor, new_logits: Tensor, new_labels: Tensor) -> Network:
    """Return a network with what the forms are made of."""
    left_out, guessing = start.frozen_features["nll"], start.guessing or 1.0
    nll = float(Categorical()(logits.double(), labels))
    return Network(
        task=task,
        N=len(labels),
        D=start.dimension or 1.0,
        information=guessing - left_out,
        R=max(0.1, 1 - left_out / guessing),
        F=max(0.0, 1 - nll / left_out),
        start=start,
        logits=logits.double(),
        labels=labels,
        new_logits=new_logits.double(),
        new_labels=new_labels,
    )


def read(images: Path, calibration: Path) -> list[Network]:
    """Read all kept networks."""
    found = []
    for task in CHOSEN_ON:
        for path in sorted(images.glob(f"{task.name}-?.safetensors")):
            kept = safetensors.torch.load_file(path)
            about = float(kept["dimension"]), kept["frozen_accuracy"], kept["information"]
            start = known_before(kept["y"], *about)
            found.append(network(task.name, start, kept["z"], kept["y"], kept["other_z"], kept["other_y"]))
    for path in sorted((calibration / "networks").glob("*001.safetensors")):
        seen = safetensors.torch.load_file(path)
        about = dimension(seen["frozen"]), seen["frozen_accuracy"], seen["information"]
        start, cell = known_before(seen["train_y"], *about), path.stem.rpartition("-")[0]
        found.append(network(cell, start, seen["train_z"], seen["train_y"], seen["test_z"], seen["test_y"]))
    return found


def shares(networks: list[Network], curves: list[np.ndarray], form: Form) -> np.ndarray:
    """Return by which share each NLL is above the best temperature's, with each constant, [constants, networks]."""
    found = []
    for one, curve in zip(networks, curves, strict=True):
        pulls = CONSTANTS * max(form(one), 1e-9)
        found.append(np.interp(np.log(pulls), np.log(PULLS), curve))
    return np.array(found).T


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", type=Path)
    parser.add_argument("calibration", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    networks = read(arguments.images, arguments.calibration)
    tasks = np.array([n.task for n in networks])
    weights = np.array([1 / (tasks == task).sum() for task in tasks])
    print(f"{len(networks)} networks of {len(set(tasks))} tasks\n")
    print("| pull, times a constant | constant | above the best, on tasks left out | within 5 % | largest ", end="")
    print("| the last three with the bound |\n| --- | --- | --- | --- | --- | --- |")
    curves = {bound: [n.above(bound) for n in networks] for bound in (False, True)}
    for title, form in FORMS.items():
        cells: list[str] = []
        for bound in (False, True):
            found = shares(networks, curves[bound], form)
            chosen = {task: (found * weights)[:, tasks != task].sum(1).argmin() for task in set(tasks)}
            left_out = np.array([found[chosen[task], i] for i, task in enumerate(tasks)])
            cells += [] if bound else [f"{CONSTANTS[(found * weights).sum(1).argmin()]:.2g}"]
            cells.append(f"{np.average(left_out, weights=weights):.1%}")
            cells += [f"{(left_out <= 0.05).sum()}", f"{left_out.max():.1%}"]
        print(f"| {title} | {' | '.join(cells[:4])} | {', '.join(cells[4:])} |", flush=True)


if __name__ == "__main__":
    main()
