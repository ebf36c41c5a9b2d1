"""The temperature of a trained network, and prediction sets: how certain its predictions should be.

A temperature comes from the training set alone, from networks that were trained on parts of it (`deelbo.folds`), or
from labelled examples that the network has not seen. The last two also give prediction sets.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from deelbo._modules import eval_mode
from deelbo.likelihoods import Likelihood
from deelbo.likelihoods.categorical import IGNORED
from deelbo.likelihoods.temperature import confident_factor, held_out_factor, training_set_factor
from deelbo.metrics import measure
from deelbo.training.batches import in_order, network_output
from deelbo.training.start import MOST_EXAMPLES, Start

CALIBRATIONS = ("free", "folds=K", "none")
DEFAULT_FOLDS = 5
SPREAD = 1.0  # of the temperature's logarithm a priori, by which the free temperature may be wrong


@dataclass(frozen=True)
class Calibration:
    """How certain the predictions of a run are made.

    Args:
        temperature: What logits are divided by, or what predicted standard deviations are multiplied with.
        source: Where it comes from: "none", "training set", "folds" or "held-out examples".
        folds: Number of folds.
        examples: Number of examples that it comes from.
        seconds: Time that it took.
        unseen: Metrics of calibrated predictions for examples that the predicting networks had not seen.
        scores: How unusual each of these examples is, [examples, numbers]; see `Likelihood.scores`.
    """

    temperature: float = 1.0
    source: str = "none"
    folds: int = 0
    examples: int = 0
    seconds: float = 0.0
    unseen: dict[str, float] = field(default_factory=dict)
    scores: Tensor | None = field(default=None, compare=False)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for `run.json`; the scores have a file of their own."""
        return {name: value for name, value in asdict(self).items() if name != "scores"}

    def describe(self) -> str:
        """Return the temperature and its source as a phrase."""
        source = f"{self.folds} folds" if self.source == "folds" else self.source
        return f"{self.temperature:.3g}" + (f" (from {source})" if self.source != "none" else " (not calibrated)")

    def limits(self, alpha: float) -> list[float]:
        r"""Return the largest scores that prediction sets include, one for each column.

        It is the ceil((1 - alpha) (n + 1))-th smallest of the n scores, as in conformal prediction; infinity if n is
        smaller than 1/alpha - 1, so that such a set has all classes, or is the whole line.

        Args:
            alpha: Share of targets that may lie outside of their sets.

        Raises:
            ValueError: If alpha is not between 0 and 1, or no unseen examples were predicted.
        """
        if not 0 < alpha < 1:
            raise ValueError(f"alpha={alpha}: it is the share of targets that may lie outside, between 0 and 1")
        if self.scores is None:
            raise ValueError(
                "prediction sets need predictions for examples that the network has not seen: first "
                'train with calibrate="folds=5", or use deelbo calibrate RUN'
            )
        number = len(self.scores)
        rank = math.ceil((1 - alpha) * (number + 1))
        if rank > number:
            return [math.inf] * self.scores.shape[1]
        return self.scores.sort(0).values[rank - 1].tolist()


def parse_calibration(text: str) -> int | None:
    """Return the number of folds that a text such as "folds=5" asks for, 0 for "free" and None for "none".

    Raises:
        ValueError: If the text is something else.
    """
    if not isinstance(text, str):
        raise ValueError(f"calibrate={text!r}, but it is one of {', '.join(CALIBRATIONS)} with K of at least 2")
    if text == "none":
        return None
    if text == "free":
        return 0
    name, _, number = text.partition("=")
    if name == "folds" and (number.isdecimal() or text == "folds"):
        folds = int(number) if number else DEFAULT_FOLDS
        if folds >= 2:
            return folds
    raise ValueError(f"calibrate={text!r}, but it is one of {', '.join(CALIBRATIONS)} with K of at least 2")


@torch.no_grad()
def outputs_of(
    network: nn.Module, dataset: Dataset, batch_size: int, autocast: Callable[[], Any], most: int = MOST_EXAMPLES
) -> tuple[Tensor, Tensor]:
    """Return the outputs of a network in eval mode, and the targets, on the CPU.

    Args:
        network: The network.
        dataset: Labelled examples.
        batch_size: Number of examples at a time.
        autocast: Function that returns the context in which the network is called.
        most: Number of examples at most; of more, a random part is used.
    """
    number, device = len(dataset), next(network.parameters()).device  # type: ignore[arg-type]
    order = torch.randperm(number, generator=torch.Generator().manual_seed(0))[:most].sort().values
    outputs, targets = [], []
    with eval_mode(network), autocast():
        for inputs, labels in in_order(dataset, batch_size, device, order.tolist()):
            outputs.append(network_output(network, inputs).float().cpu())
            targets.append(labels.cpu())
    return torch.cat(outputs), torch.cat(targets)


def free_factor(outputs: Tensor, targets: Tensor, likelihood: Likelihood, start: Start, number: int) -> float:
    """Return the factor of a network's outputs, at most 1, that needs nothing but its training examples.

    Args:
        outputs: Outputs for the training examples, without augmentation.
        targets: Their targets.
        likelihood: Likelihood, on the CPU, whose outputs are logits.
        start: What was found out about the pretrained network's features before training.
        number: N, the number of training examples, of which these may be a part.
    """
    pull = start.pull(number, float(likelihood(outputs, targets)))
    factor = min(1.0, training_set_factor(outputs, targets, likelihood, pull))
    if likelihood.name == "categorical" and "accuracy" in start.frozen_features:
        left_out = (number * start.frozen_features["accuracy"] + 1) / (number + 2)  # Laplace's rule of succession
        factor = confident_factor(outputs[targets != IGNORED], factor, left_out)
    return factor


def training_set_calibration(
    outputs: Tensor, targets: Tensor, likelihood: Likelihood, start: Start, number: int
) -> Calibration:
    """Return the calibration that needs nothing but outputs for the training examples; it never makes more certain.

    A likelihood of numbers is not calibrated: its noise was learned. See `free_factor` for the arguments.
    """
    if not likelihood.scale_free or not bool(outputs.isfinite().all()):
        return Calibration()
    temperature = 1 / free_factor(outputs, targets, likelihood, start, number)
    return Calibration(temperature, "training set", examples=len(targets))


def held_out_calibration(outputs: Tensor, targets: Tensor, likelihood: Likelihood, center: float = 1.0) -> Calibration:
    """Return the calibration by examples that the network was not trained on.

    Args:
        outputs: Outputs of the network for these examples.
        targets: Their targets.
        likelihood: Likelihood, on the CPU.
        center: Temperature that is assumed if these examples are too few to tell.

    Raises:
        ValueError: If an output is not a finite number.
    """
    if not bool(outputs.isfinite().all()):
        raise ValueError("an output of the network is not a finite number, so there is no temperature for it")
    if likelihood.name == "categorical":
        outputs, targets = outputs[targets != IGNORED], targets[targets != IGNORED]
    prediction = likelihood.prediction(likelihood.averageable(outputs))
    if likelihood.scale_free:
        temperature = 1 / held_out_factor(outputs, targets, likelihood, 1 / center, SPREAD)
    else:  # the standard deviation of the errors, in predicted standard deviations
        temperature = float(likelihood.scores(likelihood.shown(prediction), targets).square().mean().sqrt())
    tempered = likelihood.tempered(prediction, temperature)
    return Calibration(
        temperature,
        "held-out examples",
        examples=len(targets),
        unseen=measure(likelihood, tempered, targets),
        scores=likelihood.scores(likelihood.shown(tempered), targets) if likelihood.has_sets else None,
    )
