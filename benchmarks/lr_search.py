"""Cost of the race for the best learning rate, and its loss of quality against training with every rate (the grid).

    python benchmarks/lr_search.py [--tasks mlp,rff] [--cifar10 FOLDER] [--agnews FOLDER] [--seeds 1001,2001]

Cost is measured in full runs: steps of all candidates / steps of one, and the same ratio of seconds, including the
time for estimates of the objective. Regret is how much worse the race's final objective is than the grid's, relative to
the grid's. Both train a candidate bit for bit alike (a test shows it), so the grid continues from the race's states.
"Test" is the accuracy of the race's choice and the best of all rates, on the digits that are not trained on.
"""

from __future__ import annotations

import argparse
import copy
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from deelbo._modules import eval_mode
from deelbo._seeds import own_randomness
from deelbo.data import load_data, split
from deelbo.likelihoods import Categorical
from deelbo.models import load_model
from deelbo.training.loop import Candidate
from deelbo.training.method import METHODS, MethodInputs
from deelbo.training.pipeline import StepBatches
from deelbo.training.search import MemoryStore, Search
from deelbo.training.settings import Settings

Task = tuple[nn.Module, Any, Any, str | None, Any]  # network, training set, the same without augmentation, head, test


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def convolutional() -> nn.Module:
    layers = [nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()]
    layers += [nn.Conv2d(16, 32, 3, stride=2), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10)]
    return nn.Sequential(*layers)


class RandomFeatures(nn.Module):
    """Fixed random Fourier features (lengthscale 2) and a linear classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("frequencies", torch.randn(64, 1024) / 2)
        self.register_buffer("phases", torch.rand(1024) * 2 * torch.pi)
        self.fc = nn.Linear(1024, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.cos(x @ self.get_buffer("frequencies") + self.get_buffer("phases")) * (2 / 1024) ** 0.5)


def on_digits(network: Callable[[], nn.Module], number: int, head: str, seed: int) -> Task:
    images, labels = (torch.tensor(array) for array in load_digits(return_X_y=True))
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    data, test = (TensorDataset(images[part].float() / 16, labels[part]) for part in (order[:number], order[number:]))
    torch.manual_seed(seed)
    return network(), data, data, head, test


def on_files(folder: str | None, model: str, number: int, seed: int, **options: int) -> Task | None:
    if folder is None:
        return None
    data = split(load_data(folder), number, None, seed)
    torch.manual_seed(seed)
    network, reader = load_model(model, data.kind, data.targets, **options)  # type: ignore[arg-type]
    return (network, *reader.training_sets(data.train), None, None)


TASKS: dict[str, tuple[str, Callable[[argparse.Namespace, int], Task | None], dict[str, Any]]] = {
    "mlp": (
        "digits, MLP, N = 300, L2-zero, 600 steps",
        lambda a, seed: on_digits(mlp, 300, "2", seed),
        {"prior": "l2-zero", "steps": 600},
    ),
    "mlp-long": (
        "digits, MLP, N = 1000, L2-zero, 4,000 steps",
        lambda a, seed: on_digits(mlp, 1000, "2", seed),
        {"prior": "l2-zero", "steps": 4000},
    ),
    "mlp-elbo": (
        "digits, MLP, N = 300, ELBO, 600 steps",
        lambda a, seed: on_digits(mlp, 300, "2", seed),
        {"prior": "l2-zero", "steps": 600, "method": "elbo"},
    ),
    "mlp-wide": (
        "digits, MLP, N = 300, rates 1 ... 0.001",
        lambda a, seed: on_digits(mlp, 300, "2", seed),
        {"prior": "l2-zero", "steps": 600, "learning_rates": (1, 0.1, 0.01, 0.001)},
    ),
    "cnn": (
        "digits, CNN with batch norm, N = 300, L2-SP, 600 steps",
        lambda a, seed: on_digits(convolutional, 300, "8", seed),
        {"steps": 600},
    ),
    "cnn-wide": (
        "digits, CNN with batch norm, N = 300, rates 1 ... 0.001",
        lambda a, seed: on_digits(convolutional, 300, "8", seed),
        {"steps": 600, "learning_rates": (1, 0.1, 0.01, 0.001)},
    ),
    "cnn-adamw": (
        "digits, CNN with batch norm, N = 300, AdamW, 600 steps",
        lambda a, seed: on_digits(convolutional, 300, "8", seed),
        {"steps": 600, "optimizer": "adamw"},
    ),
    "rff": (
        "digits, random Fourier features, N = 300, 600 steps",
        lambda a, seed: on_digits(RandomFeatures, 300, "fc", seed),
        {"prior": "l2-zero", "steps": 600},
    ),
    "rff-wide": (
        "digits, random Fourier features, N = 300, rates 1 ... 0.001",
        lambda a, seed: on_digits(RandomFeatures, 300, "fc", seed),
        {"prior": "l2-zero", "steps": 600, "learning_rates": (1, 0.1, 0.01, 0.001)},
    ),
    "cifar100": (
        "CIFAR-10, EfficientNet-Lite0, 64 px, N = 100, 200 steps",
        lambda a, seed: on_files(a.cifar10, "offline:efficientnet_lite0", 100, seed, image_size=64),
        {"steps": 200},
    ),
    "cifar1000": (
        "CIFAR-10, EfficientNet-Lite0, 64 px, N = 1000, 200 steps",
        lambda a, seed: on_files(a.cifar10, "offline:efficientnet_lite0", 1000, seed, image_size=64),
        {"steps": 200},
    ),
    "agnews": (
        "AG News, MiniLM, 32 tokens, N = 400, 200 steps of 16",
        lambda a, seed: on_files(a.agnews, "offline:minilm", 400, seed, max_length=32),
        {"steps": 200, "batch_size": 16},
    ),
}


def search(
    task: Task, settings: Settings, store: MemoryStore, accelerator: Accelerator
) -> tuple[float, float, dict[float, float]]:
    """Return the chosen learning rate, the final objective of its run, and test accuracies of the rates in full."""
    network, train_set, plain_set, head, test = task
    initial = copy.deepcopy(network.state_dict())

    def make(rate: float) -> Candidate:
        network.load_state_dict(initial)
        likelihood, prior = Categorical(), settings.prior_recipe().make(network, head)
        inputs = MethodInputs(network, prior, likelihood, len(train_set), 10, settings)
        return Candidate(
            network,
            method=METHODS[settings.method].make(inputs),
            likelihood=likelihood,
            batches=StepBatches(train_set, settings, accelerator),
            plain_set=plain_set,
            learning_rate=rate,
            settings=settings,
            accelerator=accelerator,
        )

    with own_randomness(accelerator.device), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        running = Search(settings, make, store)
        rate, _ = running.run()
        accuracies = {}
        for full in running.values[settings.steps] if test is not None else ():
            candidate, kept = make(full), store.get(full)
            assert kept is not None
            candidate.restore(kept)
            accuracies[full] = accuracy(network, *test.tensors)
    network.load_state_dict(initial)
    return rate, running.values[settings.steps][rate], accuracies


@torch.no_grad()
def accuracy(network: nn.Module, inputs: Tensor, labels: Tensor) -> float:
    """Return the accuracy of a network at its means."""
    with eval_mode(network):
        return float((network(inputs).argmax(1) == labels).double().mean())


def spent(store: MemoryStore, settings: Settings) -> tuple[float, float]:
    """Return the total steps and seconds of all candidates."""
    notes = [kept[1] for rate in settings.learning_rates if (kept := store.get(rate)) is not None]
    return sum(n["clock"]["number"] for n in notes), sum(n["clock"]["steps"] + n["clock"]["objective"] for n in notes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default=",".join(TASKS), help="tasks, separated by commas")
    parser.add_argument(
        "--seeds", default="1001", help="seeds for the training subset and training, separated by commas"
    )
    parser.add_argument("--cifar10", help="folder with images of CIFAR-10 in train/CLASS/*")
    parser.add_argument("--agnews", help="folder with train.csv of AG News")
    arguments = parser.parse_args()
    accelerator = Accelerator(cpu=True)
    columns = "grid chose | race chose | objective/(kappa N): grid | race | regret | cost: steps | seconds | test"
    print(f"| task | seed | {columns} |")
    print("| --- " * 10 + "|")
    for key in arguments.tasks.split(","):
        name, make_task, options = TASKS[key]
        for seed in map(int, arguments.seeds.split(",")):
            task = make_task(arguments, seed)
            if task is None:
                continue
            settings = Settings(**{"batch_size": 32, "seed": seed, **options})
            store = MemoryStore()
            race_rate, race_value, race_accuracy = search(task, settings, store, accelerator)
            steps, seconds = spent(store, settings)
            grid_rate, grid_value, accuracies = search(task, replace(settings, lr_search="grid"), store, accelerator)
            _, all_seconds = spent(store, settings)
            weights = sum(p.numel() for p in task[0].parameters())
            scale = len(task[1]) * (1 if settings.method == "elbo" else max(1, weights / len(task[1])))
            cells = [
                name,
                str(seed),
                f"{grid_rate:g}",
                f"{race_rate:g}",
                f"{grid_value / scale:.4f}",
                f"{race_value / scale:.4f}",
                f"{(grid_value - race_value) / abs(grid_value):.1%}",
                f"{steps / settings.steps:.2f}",
                f"{seconds / (all_seconds / len(settings.learning_rates)):.2f}",
                f"{race_accuracy[race_rate]:.1%}, {max(accuracies.values()):.1%}" if accuracies else "",
            ]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
