r"""How large a network's outputs should be for its probabilities to be right: one factor s = 1 / temperature.

With held-out examples, s is the factor with the best likelihood. Without any, the classifier is taken as a model of its
own on given features. As the evidence does for a linear model, its prior variance makes the penalty at the fitted
weights gamma / 2 in all, where gamma is the number of weights that the data determine; it grows with s^2:

    s* = argmin over s of  mean NLL(s * outputs) + pi s^2 / 2,   pi = gamma / N     on the training set, at the means.

How large pi is for features that are trained is measured (`Start.pull`); docs/calibration.md has the argument, the
measurements, and where it is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from deelbo.likelihoods.base import Likelihood

_GOLDEN = (5**0.5 - 1) / 2
_SMALLEST, _LARGEST = math.exp(-5), math.exp(8)  # of the factors that are tried


def held_out_factor(
    outputs: Tensor, targets: Tensor, likelihood: Likelihood, center: float = 1.0, spread: float = math.inf
) -> float:
    """Return the factor of the outputs with the best likelihood of examples that they were not fitted to.

    If all examples are classified correctly, the likelihood grows with the factor without end. A prior, log s ~
    N(log center, spread^2), is worth so little that it matters for few examples only.

    Args:
        outputs: Outputs of the network for these examples.
        targets: Their targets.
        likelihood: Likelihood whose outputs are logits.
        center: Most probable factor a priori.
        spread: Standard deviation of the factor's logarithm a priori; infinity for no prior.
    """

    def loss(factor: float) -> float:
        prior = (math.log(factor / center) / spread) ** 2 / (2 * len(targets))
        return float(likelihood(factor * outputs, targets)) + prior

    return _minimise(loss)


def training_set_factor(outputs: Tensor, targets: Tensor, likelihood: Likelihood, pull: float = 1.0) -> float:
    """Return the factor s* of the outputs, from the training set alone.

    Args:
        outputs: Outputs of the network for its training examples, without augmentation.
        targets: Their targets.
        likelihood: Likelihood whose outputs are logits.
        pull: pi, determined weights for each training example.

    Example:
        >>> import torch
        >>> from deelbo.likelihoods import Categorical
        >>> from deelbo.likelihoods.temperature import training_set_factor
        >>> classes = torch.arange(20) % 4
        >>> outputs = 12.0 * torch.nn.functional.one_hot(classes)  # every example is fitted with a margin of 12
        >>> round(1 / training_set_factor(outputs, classes, Categorical()), 1)  # temperature
        2.7
    """
    pull *= likelihood.decisions(outputs)
    return _minimise(lambda factor: float(likelihood(factor * outputs, targets)) + pull * factor**2 / 2)


@torch.no_grad()
def confident_factor(logits: Tensor, factor: float, left_out: float) -> float:
    """Return the factor, or one nearer to 1 with which the network is not too careful on its training examples.

    On the examples that it was fitted to, a classifier does better than the true model would, and on examples that were
    left out worse; where it has few parameters for its examples, by as much. So the mean confidence in the most
    probable class stays at least halfway between the accuracy on examples that were left out and the confidence with
    the factor 1.

    Args:
        logits: Logits of classes for the training examples, [examples, classes].
        factor: Factor of the logits, at most 1.
        left_out: Accuracy on examples that were left out.

    Example:
        >>> import torch
        >>> from deelbo.likelihoods.temperature import confident_factor
        >>> logits = torch.tensor([[2.0, 0.0], [0.0, 2.0]])  # a confidence of 0.88
        >>> round(confident_factor(logits, 0.1, left_out=0.5), 2)  # a confidence of 0.69 instead of 0.55
        0.4
    """

    def confidence(factor: float) -> float:
        return float((factor * logits.double()).softmax(1).amax(1).mean())

    least = (left_out + confidence(1.0)) / 2
    if confidence(factor) >= least:
        return factor
    low, high = factor, 1.0
    while high - low > 1e-3:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if confidence(middle) < least else (low, middle)
    return high


@torch.no_grad()
def _minimise(loss: Callable[[float], float]) -> float:
    """Return the factor with the smallest loss, by golden section over its logarithm."""
    low, high = math.log(_SMALLEST), math.log(_LARGEST)
    inner = [high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)]
    values = [loss(math.exp(inner[0])), loss(math.exp(inner[1]))]
    while high - low > 0.01:
        if values[0] < values[1]:
            high, inner[1], values[1] = inner[1], inner[0], values[0]
            inner[0] = high - _GOLDEN * (high - low)
            values[0] = loss(math.exp(inner[0]))
        else:
            low, inner[0], values[0] = inner[0], inner[1], values[1]
            inner[1] = low + _GOLDEN * (high - low)
            values[1] = loss(math.exp(inner[1]))
    return math.exp(0.5 * (low + high))
