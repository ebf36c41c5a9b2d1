"""A finished run: its network, what it learned, what it predicts, and its folder."""

from __future__ import annotations

import csv
import importlib.metadata
import math
import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from deelbo._words import csv_text
from deelbo.data.images import ImageSet
from deelbo.data.texts import TextSet
from deelbo.models import LoadedModel, restore_model
from deelbo.posteriors import IsotropicPosterior
from deelbo.training.batches import in_order, to_device
from deelbo.training.checkpoint import read_json, read_tensors, write_json, write_tensors, write_text
from deelbo.training.evaluation import metrics, probabilities
from deelbo.training.settings import Settings, plain_variances

SCHEMA = 2  # of run.json


@dataclass
class Result:
    """A finished run.

    Args:
        model: The network with the best candidate's mean weights, in eval mode.
        settings: Of the run.
        learning_rate: The best one.
        objective: Its training objective.
        prior_variances: Learned (or given) variances by group.
        scale: The posterior's, None for a point estimate.
        history: A row for each epoch of each candidate.
        values: The objective of the candidates at each rung of the search, by step and learning rate.
        num_data: N.
        num_params: D.
        speed: Examples a second, seconds, and the shares of data and of all that is outside the network.
        source: Which model it is and how it reads images or texts; None for a network made in Python.
    """

    model: nn.Module
    settings: Settings
    learning_rate: float
    objective: float
    prior_variances: dict[str, float]
    scale: float | None
    history: list[dict[str, float]]
    values: dict[int, dict[float, float]]
    num_data: int
    num_params: int
    speed: dict[str, float] = field(default_factory=dict)
    source: LoadedModel | None = None

    @property
    def posterior(self) -> IsotropicPosterior | None:
        """The posterior around the model's weights, None for a point estimate."""
        return None if self.scale is None else IsotropicPosterior(self.model, init_scale=self.scale, seed=0)

    @property
    def classes(self) -> list[str] | None:
        """Names of the labels, where they are known."""
        return self.source.classes if self.source else None

    def predict(self, inputs: Any, samples: int = 0, batch_size: int = 64) -> Tensor:
        """Return class probabilities, [examples, classes].

        Args:
            inputs: A batch as the network takes it: a tensor, an array, or a dictionary of tensors. A text, the path of
                an image, a PIL image, or a list of them, if the run knows how to read them.
            samples: 0 plugs in the means; S > 0 averages S draws from the posterior.
            batch_size: Examples at a time.

        Raises:
            ValueError: If draws are asked of a point estimate, or an input cannot be read.
        """
        device = next(self.model.parameters()).device
        if isinstance(inputs, (str, Path, bytes)) or hasattr(inputs, "convert"):
            inputs = [inputs]
        if not isinstance(inputs, (Tensor, Mapping)):
            inputs = list(inputs)
            if not inputs:
                raise ValueError("nothing to predict: the list is empty")
            if not isinstance(inputs[0], (str, Path, bytes)) and not hasattr(inputs[0], "convert"):
                inputs = torch.stack([torch.as_tensor(each) for each in inputs])
        if isinstance(inputs, list):
            if self.source is None:
                raise ValueError("this run's network was made in Python: give predict() tensors, not a list")
            return self.probabilities(self.source.unlabelled(inputs), samples, batch_size)
        if isinstance(inputs, Mapping):
            parts = {name: value.split(batch_size) for name, value in inputs.items()}
            number = len(next(iter(parts.values())))
            batches: list[Any] = [{name: values[i] for name, values in parts.items()} for i in range(number)]
        else:
            batches = list(inputs.split(batch_size))
        return probabilities(self.model, [to_device(b, device) for b in batches], self.posterior, samples)

    def probabilities(
        self,
        dataset: Dataset,
        samples: int = 0,
        batch_size: int = 64,
        progress: Callable[[int, int], None] | None = None,
    ) -> Tensor:
        """Return class probabilities of a dataset's examples, [examples, classes]; its labels are not looked at.

        Args:
            dataset: As for training.
            samples: 0 plugs in the means; S > 0 averages S draws from the posterior.
            batch_size: Examples at a time.
            progress: Called after each batch with (done, total).
        """
        device = next(self.model.parameters()).device
        batches = _Inputs(dataset, batch_size, device, max(1, samples), progress)
        return probabilities(self.model, batches, self.posterior, samples)

    def evaluate(self, dataset: Dataset, samples: int = 0, batch_size: int = 64) -> dict[str, float]:
        """Return {"accuracy", "balanced_accuracy", "nll", "ece"} on a labelled dataset.

        Args:
            dataset: Examples with labels, as for training.
            samples: 0 plugs in the means; S > 0 averages S draws from the posterior.
            batch_size: Examples at a time.
        """
        return metrics(self.probabilities(dataset, samples, batch_size), labels_of(dataset))

    def save(self, path: str | Path) -> None:
        """Write `run.json`, `history.csv`, `model.safetensors` and `posterior.safetensors` into a folder.

        Raises:
            FileExistsError: If the folder holds another run, or something else.
        """
        path = Path(path)
        if path.exists() and any(path.iterdir()):
            raise FileExistsError(f"{path} is not empty; choose a new folder")
        self.write(path, {})

    def export(self, path: str | Path) -> None:
        """Write the plain network, for use without deelbo.

        A Hugging Face model by its own `save_pretrained`, with its tokenizer and label names; any other as a
        safetensors state dict, with the names of its labels beside it.

        Raises:
            FileExistsError: If the folder is not empty.
        """
        path = Path(path)
        if path.exists() and any(path.iterdir()):
            raise FileExistsError(f"{path} is not empty; choose a new folder")
        if callable(save := getattr(self.model, "save_pretrained", None)):
            save(path)
            for each in self.source.files if self.source else ():
                each.save_pretrained(path)
            return
        write_tensors(path / "model.safetensors", dict(self.model.state_dict()))
        if self.source is not None:
            write_json(path / "model.json", self.source.as_dict())

    def write(self, path: Path, more: dict[str, Any]) -> None:
        """Write the folder of the run, `run.json` last.

        Args:
            path: The folder; what is there is replaced.
            more: Further entries of `run.json`.
        """
        write_tensors(path / "model.safetensors", dict(self.model.state_dict()))
        if self.scale is not None:
            write_tensors(path / "posterior.safetensors", {"scale": torch.tensor(self.scale, dtype=torch.float64)})
        write_text(path / "history.csv", csv_text(self.history))
        if self.source is not None and self.source.files:
            self.source.write_files(path / "architecture")
        values = {  # JSON has no infinity: who diverged has no value
            str(step): {str(rate): v if math.isfinite(v) else None for rate, v in row.items()}
            for step, row in self.values.items()
        }
        learned = {
            "learning_rate": self.learning_rate,
            "objective": self.objective,
            "prior_variances": plain_variances(self.prior_variances),
            "scale": self.scale,
            "search": values,
        }
        write_json(
            path / "run.json",
            {
                "schema": SCHEMA,
                "status": "finished",
                "settings": self.settings.as_dict(),
                "num_data": self.num_data,
                "num_params": self.num_params,
                "learned": learned,
                "speed": self.speed,
                "model": self.source.as_dict() if self.source else None,
                "versions": versions(),
                **more,
            },
        )


@dataclass
class _Inputs:
    """The inputs of a dataset in batches, as often as wanted."""

    dataset: Dataset
    batch_size: int
    device: torch.device
    times: int
    progress: Callable[[int, int], None] | None
    done: int = 0

    def __iter__(self) -> Iterator[Any]:
        for inputs, labels in in_order(self.dataset, self.batch_size, self.device):
            yield inputs
            self.done += len(labels)
            if self.progress is not None:
                self.progress(self.done, self.times * len(self.dataset))  # type: ignore[arg-type]


def labels_of(dataset: Dataset) -> Tensor:
    """Return the labels of a dataset, [examples]."""
    if isinstance(dataset, (ImageSet, TextSet)):  # no need to decode anything
        return torch.tensor(dataset.examples.labels)
    return torch.cat([labels.cpu() for _, labels in in_order(dataset, 256, torch.device("cpu"))])


def read_run(folder: Path) -> dict[str, Any]:
    """Read `run.json`.

    Raises:
        FileNotFoundError: If there is none.
        ValueError: If it is damaged, something else, or of another version.
    """
    path = folder / "run.json"
    if not path.is_file():
        raise FileNotFoundError(f"{folder} is no run: there is no run.json in it")
    run = read_json(path)
    if not isinstance(run, dict) or "schema" not in run or "status" not in run:
        raise ValueError(f"{path} is not a run's")
    if run["schema"] != SCHEMA:
        raise ValueError(f"{path} has schema {run['schema']}; this version of deelbo reads {SCHEMA}")
    return run


def load(path: str | Path, model: nn.Module | None = None) -> Result:
    """Read a finished run.

    Args:
        path: Its folder.
        model: A network of the same architecture, whose weights are replaced; only needed if the run's network was
            made in Python.

    Raises:
        FileNotFoundError: If there is no run.
        ValueError: If the run is unfinished, damaged, of another architecture, or needs `model`.
    """
    folder = Path(path)
    run = read_run(folder)
    if run.get("status") != "finished":
        raise ValueError(f"{folder} is an unfinished run; call finetune(..., out={str(path)!r}) to go on with it")
    try:
        return _restore(folder, run, model)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{folder / 'run.json'} is damaged: {type(error).__name__} {error}") from error


def _restore(folder: Path, run: dict[str, Any], model: nn.Module | None) -> Result:
    source = None
    if model is None:
        if run.get("model") is None:
            raise ValueError(f"the network of {folder} was made in Python: pass it as load(path, model)")
        source = restore_model(run["model"], folder / "architecture")
        model = source.network
    try:
        model.load_state_dict(read_tensors(folder / "model.safetensors")[0])
    except RuntimeError as error:
        raise ValueError(f"{folder} is a run of another architecture: {error}") from error
    learned = run["learned"]
    return Result(
        model=model.eval(),
        settings=Settings(**{**run["settings"], "learning_rates": tuple(run["settings"]["learning_rates"])}),
        learning_rate=learned["learning_rate"],
        objective=learned["objective"],
        prior_variances={name: float(value) for name, value in learned["prior_variances"].items()},
        scale=learned["scale"],
        history=read_history(folder),
        values={
            int(step): {float(rate): -math.inf if v is None else v for rate, v in row.items()}
            for step, row in learned["search"].items()
        },
        num_data=run["num_data"],
        num_params=run["num_params"],
        speed=run["speed"],
        source=source,
    )


def read_history(folder: Path) -> list[dict[str, float]]:
    """Read `history.csv`."""
    with (folder / "history.csv").open(newline="") as file:
        return [{name: float(value) for name, value in row.items() if value} for row in csv.DictReader(file)]


def versions() -> dict[str, str]:
    """Return the versions of the libraries that matter, of those that are installed."""
    found = {"python": platform.python_version()}
    for name in ("deelbo", "torch", "accelerate", "timm", "torchvision", "transformers"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
