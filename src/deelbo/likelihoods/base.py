"""The base class of likelihoods, which the training loop, Laplace, SWAG, the metrics and the report rely on."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from deelbo._registry import Registry

LIKELIHOODS: Registry[type[Likelihood]] = Registry("likelihood", "deelbo.likelihoods")
CLASS_WEIGHTS = ("none", "balanced")


@dataclass(frozen=True)
class TrainingScore:
    """A score of training, such as accuracy, that the history shows beside the negative log-likelihood.

    Args:
        column: Name of the column in `history.csv`.
        sum: Sum of the score over the examples of a batch; the history has its mean over an epoch.
    """

    column: str
    sum: Tensor


@dataclass(frozen=True)
class PredictedRow:
    """The prediction for one example as a row of a table.

    Args:
        columns: Values by column, such as {"predicted": "cat", "probability": 0.9}.
        details: Further values that are too long for a table, such as the probabilities of all classes.
        shown: The prediction in a line for a person, in parts.
    """

    columns: dict[str, Any]
    details: dict[str, Any]
    shown: tuple[str, ...]


class Likelihood(nn.Module, ABC):
    """p(y | network output). Calling it gives the mean negative log-likelihood of a batch.

    Args:
        class_weights: "none", or "balanced" to let rare classes count as much as frequent ones. The weights of the N
            training examples add up to N, so that the objective stays a weighted log-likelihood of N examples.

    Raises:
        ValueError: If `class_weights` is something else, or this likelihood has no classes to balance.
    """

    name: ClassVar[str]
    task: ClassVar[str]  # name of the task for users, such as "regression"
    has_classes: ClassVar[bool] = True  # whether class weights make sense
    scale_free: ClassVar[bool] = True  # whether the size of an output says how certain it is, as with logits
    has_sets: ClassVar[bool] = False  # whether there are prediction sets
    logarithmic: ClassVar[bool] = True  # whether `averageable` gives logarithms of what is averaged
    learned_titles: ClassVar[dict[str, str]] = {}  # titles of the numbers of `learned` in the report

    def __init__(self, class_weights: str = "none") -> None:
        super().__init__()
        if class_weights not in CLASS_WEIGHTS:
            raise ValueError(f"class_weights={class_weights!r}, but it is one of {', '.join(CLASS_WEIGHTS)}")
        if class_weights != "none" and not self.has_classes:
            raise ValueError(f"class_weights={class_weights!r}: {self.task} has no classes to balance")
        self.class_weights = class_weights

    @classmethod
    def for_training(cls, class_weights: str) -> Likelihood:
        """Return the likelihood as `finetune` uses it."""
        return cls(class_weights=class_weights)

    # ---- training ----

    @property
    def needs_targets(self) -> bool:
        """Whether `fit` must see the targets of the whole training set before training."""
        return self.class_weights != "none"

    def fit(self, targets: Tensor, num_outputs: int) -> None:
        """Compute what depends on all training targets, such as class weights; called once, before training.

        Args:
            targets: Targets of the training set, one row for each example.
            num_outputs: Number of outputs that the network gives for an example.

        Raises:
            ValueError: If the targets cannot be learned, such as a single number for all examples.
        """

    @abstractmethod
    def check(self, output: Tensor, target: Tensor) -> None:
        """Raise an error for outputs or targets of another shape or kind than this likelihood takes.

        Raises:
            ValueError: If they do not fit; the message says what was expected and what was given.
        """

    @abstractmethod
    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the (weighted) log p(y_i | output_i) of every example i."""

    def log_likelihood(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the sum of log p(y_i | output_i) over the batch."""
        return self.log_prob(output, target).sum()

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the mean negative log-likelihood of the batch."""
        return -self.log_prob(output, target).mean()

    def decisions(self, output: Tensor) -> int:
        """Return how many independent decisions a row of outputs is about: one, unless there are several labels."""
        return 1

    @abstractmethod
    def linear_targets(self, target: Tensor, num_outputs: int) -> Tensor:
        """Return what a least-squares fit of the outputs aims at, [N, outputs] in float64.

        Args:
            target: Targets of some examples.
            num_outputs: Number of outputs that the network gives for an example.
        """

    def fit_noise(self, output: Tensor, target: Tensor) -> None:
        """Set a noise of the likelihood's own to what outputs for unseen examples show: nothing, unless there is one.

        Args:
            output: Outputs for examples that they were not fitted to.
            target: Targets of these examples.
        """

    @abstractmethod
    def training_score(self, output: Tensor, target: Tensor) -> TrainingScore:
        """Return a score of a batch for the history, such as how many examples are classified correctly."""

    def default_kappa(self, num_params: int, num_data: int, num_outputs: int) -> float:
        """Return the default emphasis of the data, kappa = max(1, D/N).

        Args:
            num_params: D, the number of weights.
            num_data: N, the number of training examples.
            num_outputs: Number of outputs that the network gives for an example.
        """
        return max(1.0, num_params / num_data)

    def warnings(self, kappa: float, num_params: int, num_data: int, num_outputs: int) -> list[str]:
        """Return warnings for the user before training with this emphasis; for the arguments see `default_kappa`."""
        return []

    def remarks(self) -> list[str]:
        """Return what a user should know about what was learned, after training."""
        return []

    def learned(self) -> dict[str, float]:
        """Return the numbers that this likelihood learns beside the weights, by name, for the history."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Set the state, which `state_dict` returns, from plain values; shapes may differ from the present ones.

        Args:
            state: Numbers, or lists of numbers, by name.
        """
        for name, tensor in self.state_dict(keep_vars=True).items():
            tensor.data = torch.tensor(state[name], dtype=tensor.dtype, device=tensor.device)

    # ---- predictions ----

    @abstractmethod
    def averageable(self, output: Tensor) -> Tensor:
        """Return the part of a prediction that is averaged over draws of the weights, in float64.

        If `logarithmic`, its logarithm, because probabilities of confident networks vanish: exp(-750) = 0.
        """

    def average(self, parts: Iterable[Tensor]) -> Tensor:
        """Return the average over one or more draws of what `averageable` returned for each.

        Args:
            parts: Means, or logarithms of which log 1/S sum_s exp(part_s) is the average.
        """
        draws = iter(parts)
        total, number = next(draws), 1
        for part in draws:
            total = torch.logaddexp(total, part) if self.logarithmic else total + part
            number += 1
        return total - math.log(number) if self.logarithmic else total / number

    def units(self) -> tuple[Tensor, Tensor] | None:
        """Return location and spread that convert outputs to the user's units; None if outputs have no units."""
        return None

    def prediction(self, average: Tensor) -> Any:
        """Return the prediction from an `average`: the same logarithms, unless a subclass overrides it."""
        return average

    def shown(self, prediction: Any) -> Any:
        """Return a prediction as users see it, such as probabilities instead of their logarithms."""
        return prediction

    def predictive_log_prob(self, prediction: Any, target: Tensor) -> Tensor | None:
        """Return log p(y_i) of every example under its prediction; None if `shown` predictions lose nothing of it.

        Args:
            prediction: Predictions that `prediction` or `tempered` returned.
            target: Targets of the same examples.
        """
        return None

    @abstractmethod
    def tempered(self, prediction: Any, temperature: float) -> Any:
        """Return predictions that are less certain by a temperature above 1: those for outputs / temperature.

        Args:
            prediction: Predictions that `prediction` returned.
            temperature: A positive number; 1 changes nothing.
        """

    def scores(self, prediction: Any, target: Tensor) -> Tensor:
        """Return how unusual targets are under predictions, [N, numbers]; prediction sets hold what is less unusual.

        Args:
            prediction: Predictions that `shown` returned.
            target: Targets of the same examples.

        Raises:
            ValueError: If there are no prediction sets for this likelihood.
        """
        raise ValueError(f"there are no prediction sets for the task {self.task}")

    def sets(self, prediction: Any, limits: Sequence[float]) -> Tensor:
        """Return what has scores within limits: the classes, as booleans [N, C], or the intervals, [N, K, 2].

        Args:
            prediction: Predictions that `shown` returned.
            limits: Largest score for each column of `scores`.

        Raises:
            ValueError: If there are no prediction sets for this likelihood.
        """
        raise ValueError(f"there are no prediction sets for the task {self.task}")

    def describe_sets(self, sets: Tensor, prediction: Any, names: Sequence[str]) -> list[PredictedRow]:
        """Return prediction sets as rows of a table, one for each example.

        Args:
            sets: What `sets` returned.
            prediction: The predictions that they belong to.
            names: Names of the classes or numbers.

        Raises:
            ValueError: If there are no prediction sets for this likelihood.
        """
        raise ValueError(f"there are no prediction sets for the task {self.task}")

    @abstractmethod
    def describe(self, prediction: Any, names: Sequence[str], top: int = 1) -> list[PredictedRow]:
        """Return predictions as rows of a table, one for each example.

        Args:
            prediction: Predictions that `shown` returned.
            names: Names of the classes, labels or numbers.
            top: Number of most probable classes to name.
        """

    @abstractmethod
    def score(self, prediction: Any, target: Tensor) -> float:
        """Return how good shown predictions are, larger being better; CLML chooses its temperature by it."""


def likelihood_of_task(task: str) -> str:
    """Return the name of the likelihood for a task such as "regression".

    Raises:
        ValueError: If the task is unknown.
    """
    names = {LIKELIHOODS[name].task: name for name in LIKELIHOODS}
    if task not in names:
        raise ValueError(f"task={task!r}, but it is one of {', '.join(sorted(names))}")
    return names[task]


def recognise_likelihood(targets: Tensor) -> str:
    """Return the likelihood's name for targets: integers are classes, rows of 0 and 1 labels, floats numbers.

    Args:
        targets: Targets of some examples: integers [N], integers or booleans [N, L], or floating-point numbers.
    """
    if targets.is_floating_point():
        return "gaussian"
    return "categorical" if targets.ndim == 1 else "bernoulli"
