"""A finished run: its network, what it learned, and what it predicts."""

from __future__ import annotations

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

from deelbo.export import write_network
from deelbo.likelihoods import Likelihood
from deelbo.metrics import measure
from deelbo.models import InputReader
from deelbo.posteriors import DiagonalPosterior, GaussianPosterior, IsotropicPosterior
from deelbo.run_folder import RunFolder
from deelbo.training.batches import in_order, labels_of, to_device
from deelbo.training.calibration import Calibration
from deelbo.training.method import METHODS
from deelbo.training.predictions import predict
from deelbo.training.settings import Settings, plain_variances


@dataclass
class Result:
    """A finished run.

    Args:
        model: The network with the best candidate's mean weights, in eval mode.
        settings: Settings of the run.
        likelihood: Likelihood of the targets, with what it learned, such as a noise.
        learning_rate: The best learning rate.
        objective: Training objective at the best learning rate.
        objective_scale: Number by which the objective is divided to compare with a mean loss (kappa N or N).
        prior_variances: Learned (or fixed) variance of each group of the prior, by name.
        learned: Other learned numbers, such as the posterior's scale, under the names of the history's columns; and
            "blend", how far the network lies from its pretrained weights.
        history: A row for each epoch of each candidate.
        values: Objective of each candidate at each comparison, by step and learning rate.
        num_data: N, the number of training examples.
        num_params: D, the number of trained weights.
        speed: Examples per second, seconds, and the shares of time spent on data and outside the network.
        reader: Reader of images or texts for the network; None for a network that was made in Python.
        start: What was found out and decided before the first step, such as what frozen features are worth; see
            `deelbo.training.start.Start`.
        plan: How the run was laid out in time; see `deelbo.training.time_budget.Plan`. None if it was not measured.
        calibration: How certain predictions are made.
        scales: Standard deviation of every weight, by its name, if the posterior is diagonal.
    """

    model: nn.Module
    settings: Settings
    likelihood: Likelihood
    learning_rate: float
    objective: float
    objective_scale: float
    prior_variances: dict[str, float]
    learned: dict[str, float]
    history: list[dict[str, float]]
    values: dict[int, dict[float, float]]
    num_data: int
    num_params: int
    speed: dict[str, float] = field(default_factory=dict)
    reader: InputReader | None = None
    start: dict[str, Any] = field(default_factory=dict)
    plan: dict[str, Any] | None = None
    calibration: Calibration = field(default_factory=Calibration)
    scales: dict[str, Tensor] | None = None

    @property
    def scale(self) -> float | None:
        """The posterior's scale, the geometric mean of a diagonal one's; None for a point estimate."""
        return self.learned.get("scale")

    @property
    def posterior(self) -> GaussianPosterior | None:
        """The posterior around the model's weights; None for a point estimate."""
        if self.scales is not None:
            diagonal = DiagonalPosterior(self.model, seed=0)
            diagonal.set_scales(self.scales)
            return diagonal
        return None if self.scale is None else IsotropicPosterior(self.model, init_scale=self.scale, seed=0)

    @property
    def blend(self) -> float:
        """How far the network lies on the line from its pretrained (0) to its trained weights (1)."""
        return self.learned.get("blend", 1.0)

    @property
    def names(self) -> list[str] | None:
        """Names of the classes, labels or numbers that are predicted, where they are known."""
        return self.reader.targets.names if self.reader else None

    @property
    def temperature(self) -> float:
        """What predictions divide logits by, or multiply standard deviations with; 1 if nothing was calibrated."""
        return self.calibration.temperature

    def predict(self, inputs: Any, samples: int = 0, batch_size: int = 64, *, temperature: float | None = None) -> Any:
        """Return predictions: probabilities [examples, classes or labels], or a pair (mean, std) for a regression.

        Args:
            inputs: A batch as the network takes it: a tensor, an array, or a dictionary of tensors. A text, the path of
                an image, a PIL image, or a list of them, if the run knows how to read them.
            samples: 0 plugs in the mean weights; S > 0 averages S draws from the posterior.
            batch_size: Number of examples at a time.
            temperature: Temperature instead of the run's own; 1 for the network's plain outputs.

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
                inputs = torch.stack([torch.as_tensor(item) for item in inputs])
        if isinstance(inputs, list):
            if self.reader is None:
                raise ValueError("this run's network was made in Python: give predict() tensors, not a list")
            dataset = self.reader.unlabelled(inputs)
            return self.predict_dataset(dataset, samples, batch_size, temperature=temperature)
        if isinstance(inputs, Mapping):
            parts = {name: value.split(batch_size) for name, value in inputs.items()}
            number = len(next(iter(parts.values())))
            batches: list[Any] = [{name: values[i] for name, values in parts.items()} for i in range(number)]
        else:
            batches = list(inputs.split(batch_size))
        moved = [to_device(batch, device) for batch in batches]
        raw = predict(self.model, self.likelihood, moved, self.posterior, samples)
        return self.likelihood.shown(self.tempered(raw, temperature))

    @property
    def fitted_classifier(self) -> bool:
        """Whether the classifier was fitted to given features at the end, and not only trained by steps."""
        settings = self.settings
        return not METHODS[settings.method].trains or bool(settings.pairs) or self.blend != 1

    def tempered(self, prediction: Any, temperature: float | None = None) -> Any:
        """Return raw predictions as a temperature makes them; the run's own if None.

        Args:
            prediction: What `raw_predictions` returned.
            temperature: Temperature instead of the run's own; 1 changes nothing.

        Raises:
            ValueError: If the temperature is not positive.
        """
        return self.likelihood.tempered(prediction, self._positive(temperature))

    def _positive(self, temperature: float | None) -> float:
        temperature = self.temperature if temperature is None else temperature
        if not 0 < temperature < math.inf:
            raise ValueError(f"temperature={temperature}, but it must be a positive number")
        return temperature

    def predict_dataset(
        self,
        dataset: Dataset,
        samples: int = 0,
        batch_size: int = 64,
        progress: Callable[[int, int], None] | None = None,
        *,
        temperature: float | None = None,
    ) -> Any:
        """Return predictions for the examples of a dataset; their labels are ignored. See `predict`.

        Args:
            dataset: A map-style dataset as for training.
            samples: 0 plugs in the mean weights; S > 0 averages S draws from the posterior.
            batch_size: Number of examples at a time.
            progress: Called after each batch with (done, total).
            temperature: Temperature instead of the run's own; 1 for the network's plain outputs.
        """
        raw = self.raw_predictions(dataset, samples, batch_size, progress)
        return self.likelihood.shown(self.tempered(raw, temperature))

    def raw_predictions(
        self,
        dataset: Dataset,
        samples: int = 0,
        batch_size: int = 64,
        progress: Callable[[int, int], None] | None = None,
    ) -> Any:
        """Return predictions of the network's plain outputs that lose nothing: logarithms instead of probabilities.

        Log-probabilities of classes, log-odds of labels, means and standard deviations of numbers: what `tempered`
        and `deelbo.metrics.measure` take. See `predict_dataset` for the arguments.
        """
        device = next(self.model.parameters()).device
        batches = _Inputs(dataset, batch_size, device, max(1, samples), progress)
        return predict(self.model, self.likelihood, batches, self.posterior, samples)

    def predict_sets(self, inputs: Any, alpha: float = 0.1) -> Tensor:
        """Return prediction sets that leave out the truth about so often, see docs/calibration.md for what is sure.

        Args:
            inputs: Inputs as for `predict`.
            alpha: Share of targets that may lie outside of their sets.

        Returns:
            Booleans, [examples, classes], or both ends of intervals, [examples, numbers, 2].

        Raises:
            ValueError: If the run was not calibrated by unseen examples.

        Example:
            >>> import torch, deelbo
            >>> x = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
            >>> data = torch.utils.data.TensorDataset(x, (x[:, 0] > 0).long())
            >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2))
            >>> result = deelbo.finetune(model, data, head="0", steps=50, device="cpu", calibrate="folds=3")
            >>> result.predict_sets(x[:5]).shape
            torch.Size([5, 2])
        """
        return self.likelihood.sets(self.predict(inputs), self.limits(alpha))

    def limits(self, alpha: float) -> list[float]:
        """Return the largest scores that prediction sets include; see `Calibration.limits`.

        Raises:
            ValueError: If there are no prediction sets for the task, or no unseen examples were predicted.
        """
        if not self.likelihood.has_sets:
            raise ValueError(f"there are no prediction sets for the task {self.likelihood.task}")
        return self.calibration.limits(alpha)

    def evaluate(
        self, dataset: Dataset, samples: int = 0, batch_size: int = 64, *, temperature: float | None = None
    ) -> dict[str, float]:
        """Return the metrics on a labelled dataset, such as {"accuracy", "balanced_accuracy", "nll", "ece"}.

        Args:
            dataset: Examples with labels, as for training.
            samples: 0 plugs in the mean weights; S > 0 averages S draws from the posterior.
            batch_size: Number of examples at a time.
            temperature: Temperature instead of the run's own; 1 for the network's plain outputs.
        """
        predictions = self.tempered(self.raw_predictions(dataset, samples, batch_size), temperature)
        return measure(self.likelihood, predictions, labels_of(dataset))

    def save(self, path: str | Path) -> None:
        """Write the run into a new folder, from which `deelbo.load` reads it.

        Raises:
            FileExistsError: If the folder is not empty.
        """
        _check_empty(Path(path))
        self.write(RunFolder(path), {})

    def write(self, folder: RunFolder, about: Mapping[str, Any]) -> None:
        """Write the run into a folder, together with further entries about it."""
        write_files = self.reader.write_files if self.reader is not None and self.reader.files else None
        run = {**self._as_dict(), "about": dict(about)}
        folder.finish(run, self.model.state_dict(), self.history, write_files, self.scales)
        if self.calibration.scores is not None:
            folder.write_calibration(self.calibration.as_dict(), self.calibration.scores)

    def _as_dict(self) -> dict[str, Any]:
        values = {  # JSON has no infinity: a candidate that diverged has no value
            str(step): {str(rate): v if math.isfinite(v) else None for rate, v in row.items()}
            for step, row in self.values.items()
        }
        return {
            "settings": self.settings.as_dict(),
            "num_data": self.num_data,
            "num_params": self.num_params,
            "learned": {
                **{name: value if math.isfinite(value) else None for name, value in self.learned.items()},
                "learning_rate": self.learning_rate,
                "objective": self.objective,
                "objective_scale": self.objective_scale,
                "prior_variances": plain_variances(self.prior_variances),
                "scale": self.scale,
                "search": values,
                "likelihood": {name: value.tolist() for name, value in self.likelihood.state_dict().items()},
            },
            "start": self.start,
            "plan": self.plan,
            "calibration": self.calibration.as_dict(),
            "speed": self.speed,
            "model": self.reader.as_dict() if self.reader else None,
            "versions": versions(),
        }

    def export(self, path: str | Path, *, temperature: float | None = None) -> None:
        """Write the plain network, for use without deelbo.

        A Hugging Face model by its own `save_pretrained`, with its tokenizer and label names; any other as a
        safetensors state dict, with the names of its outputs beside it in `model.json`. Where the network ends with a
        linear layer, its weights are changed so that logits are calibrated (divided by the temperature), and outputs
        of a regression are in the user's units; if it does not, a warning says so, and `model.json` has the numbers.

        Args:
            path: New folder.
            temperature: Temperature instead of the run's own; 1 for the network's plain logits.

        Raises:
            FileExistsError: If the folder is not empty.
        """
        _check_empty(Path(path))
        write_network(Path(path), self.model, self.likelihood, self.reader, self._positive(temperature))


@dataclass
class _Inputs:
    """The inputs of a dataset in batches, which can be read several times."""

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


def _check_empty(path: Path) -> None:
    if path.exists() and any(path.iterdir()):
        raise FileExistsError(f"{path} is not empty; choose a new folder")


def versions() -> dict[str, str]:
    """Return the versions of the installed libraries that can change results."""
    installed = {"python": platform.python_version()}
    for name in ("deelbo", "torch", "accelerate", "timm", "torchvision", "transformers"):
        try:
            installed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return installed
