"""A scale that takes seconds, for the tests of `reproduce`: tiny networks, a few images and texts."""

from dataclasses import replace
from pathlib import Path

from deelbo.compare import Comparison
from deelbo.compare.engines.base import attempt
from deelbo.reproduce import LAPTOP, Setup, reproduce
from deelbo.specs import ModelSpec
from deelbo.training.search import planned_steps
from shared.pictures import image_folder, text_table, tiny_bert

SMALL = ModelSpec("shared.pictures:small", image_size=28)
GRID = {"learning_rates": (0.1, 0.01), "strengths": (0.01, 0.0), "bo_iterations": 2, "clml_samples": 2}
STEPS = {"steps": 8, "batch_size": 6, "samples": 2}


def tiny_scale(folder: Path, **changes):
    """Return the laptop's scale with tiny networks; the folder holds the one for texts."""
    models = dict.fromkeys(("ResNet-50", "ViT-B/16", "ConvNeXt-Tiny"), SMALL)
    models["BERT-base"] = ModelSpec(f"hf:{folder / 'bert'}")
    small = {
        "models": models,
        "sizes": {"cifar10": (15, 18), "flowers102": (15,), "pets": (15,), "agnews": (16,)},
        "settings": {"image": STEPS, "text": STEPS},
        "options": {"image": GRID, "text": GRID},
        "kept_size": 18,
        "kappas": 3,
        "samples": 4,
        "seeds": (1001, 2001),
        "test_size": None,
    }
    return replace(LAPTOP, **{**small, **changes})


def tiny_setup(folder: Path, datasets=("cifar10",), **changes):
    """Return a setup with data and networks in a folder, made if they are not there."""
    for name in datasets:
        path = folder / "data" / name
        if name == "agnews" and not path.exists():
            path.mkdir(parents=True)
            text_table(path / "train.csv", rows=24)
            text_table(path / "test.csv", rows=8)
            tiny_bert(folder / "bert")
        elif not path.exists():
            image_folder(path, train=10, test=3)
    data = {name: folder / "data" / name for name in datasets}
    scale = tiny_scale(folder, **changes.pop("scale", {}))
    return Setup(**{"out": folder / "out", "scale": scale, "data": data, "device": "cpu", **changes})


def make_tiny(folder: str, name: str, steps: int = 40) -> int:
    """Make an entry in a process of its own, as `deelbo reproduce` does; to be killed."""
    settings = {"image": {**STEPS, "steps": steps}, "text": STEPS}
    reproduce(name, tiny_setup(Path(folder), scale={"settings": settings}))
    return 0


def fill(setup, study, accuracy=None):
    """Write records by hand, as if all runs of a study had been made; return the finished comparison.

    The accuracy of a run is a function of its trial; every run took ten seconds for each full run that it is worth.
    """
    comparison = Comparison(study.problems(setup), setup.records)
    while wanted := comparison.wanted():
        for trial in wanted:
            setup.records.put(trial.key, record(trial, 0.5 if accuracy is None else accuracy(trial)))
    return comparison


def record(trial, accuracy):
    settings = trial.settings
    runs = planned_steps(settings) / settings.steps
    metrics = {"accuracy": accuracy, "balanced_accuracy": accuracy, "nll": 2 * (1 - accuracy), "ece": 0.1}
    variational = settings.method in ("elbo", "de-elbo")
    default = 1.0 if settings.method == "elbo" else 40.0
    return {
        "key": trial.key, "trial": trial.identity(), "diverged": False, "runs": runs, "objective": 100 * accuracy,
        "validation": {"nll": 1 - accuracy} if trial.held_out else None,
        "clml": None if trial.clml is None else {"value": accuracy},
        "test": metrics, "calibrated": metrics, "tested": 9, "num_data": 20, "num_params": 800,
        "seconds": {"training": 10 * runs, "objective": 0.0, "validation": 0.0, "clml": 0.0, "test": 1.0},
        "kappa": (settings.kappa or default) if variational else None, "kl": 0.1 if variational else None,
    }  # fmt: skip


class InlineEngine:
    """Makes each run in this process when it is submitted, so that no worker has to start."""

    slots = 1

    def __init__(self, folder, device, **resources):
        self.folder, self.device, self.outcomes = folder, device, []

    def submit(self, trial):
        self.outcomes.append(attempt(trial, self.folder, self.device))

    def wait(self, seconds):
        outcomes, self.outcomes = self.outcomes, []
        return outcomes

    def progress(self):
        return {}

    def close(self):
        pass
