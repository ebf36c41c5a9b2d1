"""Numbers to predict: a Gaussian around the network's output, with a learned noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deelbo.likelihoods.base import LIKELIHOODS, Likelihood, PredictedRow, TrainingScore
from deelbo.posteriors.base import inverse_softplus

FLOOR = 1e-3  # smallest noise in `finetune`, in standard deviations of the training targets


class GaussianPrediction(NamedTuple):
    """A predicted distribution for each number.

    Attributes:
        mean: Predicted means in the targets' own units, [N, K].
        std: Predicted standard deviations: the learned noise and, if draws were averaged, their spread, [N, K].
    """

    mean: Tensor
    std: Tensor


@LIKELIHOODS.register("gaussian", "numbers (regression)")
class Gaussian(Likelihood):
    r"""p(y | output) = N((y - location) / spread | output, noise^2 I) with a learned noise.

    `fit` sets location and spread, at first 0 and 1, to the mean and standard deviation of the training targets: the
    network learns standardised numbers, while targets and predictions stay in the user's units. `log_prob` is in
    standardised units: in the user's units it is smaller by sum_k log spread_k for every example.

    Give `likelihood.parameters()` to the optimizer: the noise is learned by gradient beside the weights. Its
    gradient is scaled like that of the weights, so that the same learning rate can be used.

    With K numbers for each example the terms in log(noise) of the objective add up to (D - kappa N K) log(noise) once
    the network fits the training set exactly: for kappa N K > D it grows without bound as the noise goes to zero. So
    `default_kappa` is max(1, D / (N K)), and `floor` bounds the noise from below.

    Args:
        noise: Initial standard deviation of the noise, in standardised units.
        floor: Smallest noise that can be learned, in standardised units; 0 for no bound.
        class_weights: Only "none", because there are no classes.

    Example:
        >>> import torch
        >>> from deelbo.likelihoods import Gaussian
        >>> likelihood = Gaussian()
        >>> likelihood.fit(torch.tensor([10.0, 20.0, 30.0]), num_outputs=1)
        >>> likelihood.prediction(likelihood.averageable(torch.zeros(1, 1))).mean  # output 0 is the mean target
        tensor([[20.]], dtype=torch.float64)
    """

    name, task, has_classes, scale_free, has_sets = "gaussian", "regression", False, False, True
    logarithmic = False  # moments are averaged
    learned_titles = {"noise": "learned noise, in standard deviations of the targets"}  # noqa: RUF012 - never changed
    location: Tensor
    spread: Tensor

    def __init__(self, noise: float = 1.0, floor: float = 0.0, class_weights: str = "none") -> None:
        super().__init__(class_weights)
        self.floor = floor
        self.raw_noise = nn.Parameter(torch.tensor(inverse_softplus(noise - floor)))
        self.register_buffer("location", torch.zeros(1, dtype=torch.float64))
        self.register_buffer("spread", torch.ones(1, dtype=torch.float64))

    @classmethod
    def for_training(cls, class_weights: str) -> Gaussian:
        """Return the likelihood with a noise that is bounded from below."""
        return cls(floor=FLOOR, class_weights=class_weights)

    @property
    def needs_targets(self) -> bool:
        """Always true: the targets are standardised."""
        return True

    @property
    def noise(self) -> Tensor:
        """Standard deviation sigma_y of the noise in standardised units, a positive zero-dimensional tensor."""
        return self.floor + F.softplus(self.raw_noise)

    def fit(self, targets: Tensor, num_outputs: int) -> None:
        """Compute mean and standard deviation of the training targets, by which they are standardised.

        Raises:
            ValueError: If a target is not finite, or all are the same.
        """
        rows = targets.double().reshape(len(targets), -1)
        if not bool(rows.isfinite().all()):
            raise ValueError("a training target is not a finite number")
        spread = rows.std(0, correction=0)
        for number, (own, largest) in enumerate(zip(spread.tolist(), rows.abs().amax(0).tolist(), strict=True), 1):
            if own <= 1e-12 * largest:
                which = "" if len(spread) == 1 else f" (number {number} of {len(spread)})"
                raise ValueError(f"all training targets{which} are the same number: there is nothing to learn")
        device = self.location.device
        self.location, self.spread = rows.mean(0).to(device), spread.to(device)

    def check(self, output: Tensor, target: Tensor) -> None:
        """Raise an error unless targets are floating-point numbers, and there is an output for each."""
        if not target.is_floating_point():
            raise ValueError(f"a target of a regression must be a floating-point number, not {target[0].tolist()}")
        if output.reshape(len(output), -1).shape != target.reshape(len(target), -1).shape:
            raise ValueError(f"the network gives {list(output.shape)} for targets of shape {list(target.shape)}")

    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        """Return log N((target_i - location) / spread | output_i, noise^2 I), summed over the numbers of an example.

        Args:
            output: Predicted means in standardised units, [N] or [N, ...].
            target: Numbers in the user's units, as many as outputs.

        Raises:
            ValueError: If the numbers of outputs and targets differ.
        """
        residual = self._standardised(target).to(output.dtype) - self._rows(output, target)
        squares = (residual / self.noise).square() + 2 * self.noise.log() + math.log(2 * math.pi)
        return -0.5 * squares.sum(1)

    def _standardised(self, target: Tensor) -> Tensor:
        """Return the targets in units of the training targets' standard deviations, [N, K]."""
        rows = target.reshape(len(target), -1)
        wide = rows.double() if rows.device.type != "mps" else rows
        return (wide - self.location.to(wide)) / self.spread.to(wide)

    def _rows(self, output: Tensor, target: Tensor) -> Tensor:
        if output.numel() != target.numel() or len(output) != len(
            target
        ):  # else broadcasting would compare all with all
            raise ValueError(f"output {list(output.shape)} and target {list(target.shape)} must have the same numbers")
        return output.reshape(len(output), -1)

    def linear_targets(self, target: Tensor, num_outputs: int) -> Tensor:
        """Return the targets in units of the training targets' standard deviations."""
        return self._standardised(target).double()

    @torch.no_grad()
    def fit_noise(self, output: Tensor, target: Tensor) -> None:
        """Set the noise to the root mean squared error of the outputs."""
        residual = self._standardised(target) - self._rows(output, target)
        noise = max(float(residual.square().mean().sqrt()), 2 * self.floor, 1e-6)
        self.raw_noise.fill_(inverse_softplus(noise - self.floor))

    def training_score(self, output: Tensor, target: Tensor) -> TrainingScore:
        """Return the sum over examples of the mean squared error, in standardised units."""
        residual = self._standardised(target) - self._rows(output, target)
        return TrainingScore("squared_error", residual.square().mean(1).sum())

    def default_kappa(self, num_params: int, num_data: int, num_outputs: int) -> float:
        """Return max(1, D / (N K)): above D / (N K) the objective has no maximum as the noise goes to zero."""
        return max(1.0, num_params / (num_data * num_outputs))

    def warnings(self, kappa: float, num_params: int, num_data: int, num_outputs: int) -> list[str]:
        """Return a warning if the objective has no maximum with this emphasis."""
        if kappa * num_data * num_outputs <= num_params * (1 + 1e-9):
            return []
        return [
            f"kappa={kappa:g} is above {num_params / (num_data * num_outputs):.3g}, the number of weights for each "
            "target: once the network fits all targets, the objective grows without bound as the noise goes to zero, "
            f"so the noise is kept above {self.floor:g} of the targets' standard deviation"
        ]

    def remarks(self) -> list[str]:
        """Say so if the noise is at its lower bound."""
        if not self.floor or self.noise.item() > 2 * self.floor:
            return []
        return [
            f"the learned noise is at its lower bound, {self.floor:g} of the targets' standard deviation: the network "
            "fits the training targets almost exactly, so the predicted standard deviations are likely too small"
        ]

    def learned(self) -> dict[str, float]:
        """Return the noise in standardised units."""
        return {"noise": self.noise.item()}

    def units(self) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation of the training targets."""
        return self.location.cpu(), self.spread.cpu()

    def averageable(self, output: Tensor) -> Tensor:
        """Return mean and mean square of the predicted distribution in the user's units, [N, K, 2]."""
        wide = output.detach().double().cpu().reshape(len(output), -1)
        location, spread = self.units()
        mean, noise = location + spread * wide, spread * self.noise.detach().double().cpu()
        return torch.stack([mean - location, (mean - location).square() + noise.square()], -1)

    def prediction(self, average: Tensor) -> GaussianPrediction:
        """Return mean and standard deviation from averaged moments."""
        mean, square = average.unbind(-1)
        return GaussianPrediction(mean + self.location.cpu(), (square - mean.square()).clamp(min=0).sqrt())

    def tempered(self, prediction: GaussianPrediction, temperature: float) -> GaussianPrediction:
        """Return the same means with standard deviations times the temperature."""
        return GaussianPrediction(prediction.mean, temperature * prediction.std)

    def scores(self, prediction: GaussianPrediction, target: Tensor) -> Tensor:
        """Return the distance of each number from its predicted mean, in predicted standard deviations, [N, K]."""
        target = target.double().cpu().reshape(len(target), -1)
        return (target - prediction.mean).abs() / prediction.std

    def sets(self, prediction: GaussianPrediction, limits: Sequence[float]) -> Tensor:
        """Return for each number the interval of so many standard deviations around its mean."""
        width = prediction.std * torch.tensor(limits, dtype=torch.float64)
        return torch.stack([prediction.mean - width, prediction.mean + width], -1)

    def describe_sets(self, sets: Tensor, prediction: GaussianPrediction, names: Sequence[str]) -> list[PredictedRow]:
        """Return both ends of each interval."""
        several, rows = len(names) > 1, []
        for intervals in sets.tolist():
            columns: dict[str, float | None] = {}
            shown = []
            for name, (low, high) in zip(names, intervals, strict=True):
                suffix = f"_{name}" if several else ""
                for end, value in (("low", low), ("high", high)):
                    columns[end + suffix] = float(f"{value:.6g}") if math.isfinite(value) else None
                shown.append(f"{name} " * several + f"[{low:.4g}, {high:.4g}]")
            rows.append(PredictedRow(columns, {}, tuple(shown)))
        return rows

    def describe(self, prediction: GaussianPrediction, names: Sequence[str], top: int = 1) -> list[PredictedRow]:
        """Return mean and standard deviation of each number."""
        several, rows = len(names) > 1, []
        for means, stds in zip(prediction.mean.tolist(), prediction.std.tolist(), strict=True):
            columns: dict[str, float] = {}
            shown = []
            for name, mean, std in zip(names, means, stds, strict=True):
                text, suffix = rounded(mean, std), f"_{name}" if several else ""
                columns |= {f"predicted{suffix}": float(text), f"std{suffix}": float(f"{std:.6g}")}
                shown.append(f"{name} " * several + f"{text} ± {std:.4g}")
            rows.append(PredictedRow(columns, {}, tuple(shown)))
        return rows

    def score(self, prediction: GaussianPrediction, target: Tensor) -> float:
        """Return minus the mean squared error, in standardised units."""
        error = (prediction.mean - target.double().cpu().reshape(len(target), -1)) / self.spread.cpu()
        return -float(error.square().mean())


def rounded(value: float, std: float, digits: int = 6) -> str:
    """Return a number with some digits, and more where its standard deviation is far smaller than the number.

    Args:
        value: The number.
        std: Its standard deviation.
        digits: How many digits it has at least.
    """
    if not (value and std and math.isfinite(value / std)):
        return f"{value:.{digits}g}"
    lost = math.floor(math.log10(abs(value))) - math.floor(math.log10(std))  # digits before those that matter
    return f"{value:.{min(17, max(digits, lost + 3))}g}"
