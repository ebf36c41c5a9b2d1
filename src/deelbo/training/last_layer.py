r"""The classifier at a network's end, fitted to the features that training leaves: after pairs, and after a blend.

It is a logistic regression with a penalty on its margin m: weights W have the least

    mean NLL + sqrt(60 / N) (m / m_0)^2 / 2 ,    m^2 = |W|^2 s^2 C / (C - 1)^2 ,

where s^2 is the mean squared distance of the features from their mean. For features at the corners of a simplex, which
is where pairs bring C classes, m is by how much the logit of the right class is above the others. Like the pull on the
free temperature, the margin m_0 depends on how much the pretrained features say of the classes (`usual_margin`): a
trained network separates the training examples of any task, also of one in which new examples cannot be told apart.
docs/choosing.md#pairs-before-classes has what was measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from deelbo.likelihoods import Likelihood
from deelbo.likelihoods.categorical import IGNORED
from deelbo.training.probe import fit_layer

EXAMPLES = 60  # for which the penalty is half a nat at the usual margin
MARGIN = 10.0  # m_0 where the pretrained features explain so many nats of the labels' entropy:
NATS = 0.4
LEAST = 0.01  # nats that are assumed at least


def usual_margin(information: float | None) -> float:
    r"""Return m_0 = 10 (I / 0.4)^p, with p = 1/2 for I < 0.4 and p = 1/4 above: by how much logits should differ.

    Args:
        information: I, how many nats of the labels' entropy are explained by predictions that the pretrained features
            give for examples that are left out; None if this is unknown.

    Example:
        >>> from deelbo.training.last_layer import usual_margin
        >>> usual_margin(0.1), usual_margin(0.4), usual_margin(6.4)
        (5.0, 10.0, 20.0)
    """
    if information is None:
        return MARGIN
    ratio = max(information, LEAST) / NATS
    return MARGIN * ratio ** (0.5 if ratio < 1 else 0.25)


@dataclass(frozen=True)
class LastLayer:
    """The classifier of a network, and the features that it gets.

    Args:
        layer: The classifier, a linear layer.
        margin: m_0, by how much logits usually differ; see `usual_margin`.
    """

    layer: nn.Linear
    margin: float = MARGIN

    @contextmanager
    def features(self) -> Iterator[list[Tensor]]:
        """Collect the classifier's inputs, one tensor for each call of the network in the block."""
        found: list[Tensor] = []
        hook = self.layer.register_forward_pre_hook(lambda layer, inputs: found.append(inputs[0].float()))
        try:
            yield found
        finally:
            hook.remove()

    def fit(self, features: Tensor, labels: Tensor, likelihood: Likelihood) -> None:
        """Fit the classifier to given features.

        Args:
            features: Features of the training examples, [examples, features].
            labels: Their classes.
            likelihood: Likelihood of the classes.
        """
        layer, features, number = self.layer, features.double(), self.layer.out_features
        size = (features - features.mean(0)).square().sum(1).mean().sqrt().clamp(min=1e-6)
        squared_margin = self.margin**2 * math.sqrt(len(features) / EXAMPLES)
        strength = squared_margin * max(1, number - 1) ** 2 / (number * len(features))
        with torch.enable_grad():
            fitted = fit_layer(features / size, labels, likelihood, number, strength, bias=layer.bias is not None)
        with torch.no_grad():
            layer.weight.copy_(fitted.weight / size)
            if layer.bias is not None:
                layer.bias.copy_(fitted.bias)

    def accuracy(self, features: Tensor, labels: Tensor) -> float:
        """Return the share of given examples that the classifier predicts rightly.

        Args:
            features: Features of the examples, [examples, features].
            labels: Their classes; those that are ignored are left out.
        """
        known = labels != IGNORED
        predicted = self.layer(features[known].to(self.layer.weight)).argmax(1)
        return float((predicted == labels[known]).double().mean())


def spread(features: Tensor, labels: Tensor) -> float:
    """Return which part of the features' variance lies within classes: 0 if each is one point, 1 if all are alike.

    Args:
        features: Features of some examples, [examples, features].
        labels: Their classes; those that are ignored are left out.
    """
    known = labels != IGNORED
    features, (names, labels) = features[known].double(), labels[known].unique(return_inverse=True)
    sums = features.new_zeros(len(names), features.shape[1]).index_add_(0, labels, features)
    within = features - (sums / labels.bincount()[:, None])[labels]
    return float(within.square().sum() / (features - features.mean(0)).square().sum().clamp(min=1e-30))
