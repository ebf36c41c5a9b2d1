r"""The probe: a linear layer on the features of the frozen network, its strength of regularisation by cross-validation.

Minimises  sum_i -log p(y_i | W x_i + b) + |W|^2 / (2 C)  by L-BFGS: logistic regression for classes and labels, ridge
regression for numbers. The solution lies in the span of the features, so it is sought in their principal axes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from deelbo.likelihoods import Likelihood

STRENGTHS = torch.logspace(-4, 4, 9, dtype=torch.float64)  # candidates for C, in units of 1 / mean squared feature norm
FOLDS = 5


@dataclass(frozen=True)
class Probe:
    """A linear layer on given features.

    Args:
        weight: Weights of the layer, [outputs, features].
        bias: Biases of the layer, [outputs].
        strength: C, the inverse strength of the regularisation.
        nll: Mean negative log-likelihood of the examples that were held out in cross-validation; NaN without it.
    """

    weight: Tensor
    bias: Tensor
    strength: float
    nll: float


def fit_probe(
    features: Tensor, targets: Tensor, likelihood: Likelihood, num_outputs: int, *, bias: bool = True
) -> Probe:
    """Return the layer with the best strength of `STRENGTHS` by cross-validation, fitted to all examples.

    Args:
        features: Inputs of the layer, [examples, features].
        targets: Targets of the examples, as the likelihood takes them.
        likelihood: Likelihood of the targets.
        num_outputs: Number of outputs for an example.
        bias: Whether the layer has biases, which are not regularised.
    """
    centred = features.double() - features.double().mean(0)
    candidates = STRENGTHS.to(features.device) / centred.square().sum(1).mean().clamp(min=1e-12)
    folds = _folds(targets)
    losses = torch.zeros(len(candidates), dtype=torch.float64)
    for fold in folds.unique().tolist():
        rest, held = folds != fold, folds == fold
        path = _path(features[rest], targets[rest], likelihood, num_outputs, strengths=candidates.tolist(), bias=bias)
        for i, layer in enumerate(path):
            with torch.no_grad():
                outputs = features[held].double() @ layer.weight.T + layer.bias
                losses[i] -= float(likelihood.log_likelihood(outputs, targets[held]))
    best = int(losses.argmin())
    # The path is followed again from its strongest regularisation, where L-BFGS starts safely.
    followed = candidates[: best + 1].tolist()
    layer = _path(features, targets, likelihood, num_outputs, strengths=followed, bias=bias)[-1]
    return Probe(layer.weight, layer.bias, layer.strength, float(losses[best]) / len(features))


def fit_layer(
    features: Tensor, targets: Tensor, likelihood: Likelihood, num_outputs: int, strength: float, *, bias: bool = True
) -> Probe:
    """Return the layer with a given strength.

    Args:
        features: Inputs of the layer, [examples, features].
        targets: Targets of the examples, as the likelihood takes them.
        likelihood: Likelihood of the targets.
        num_outputs: Number of outputs for an example.
        strength: C, the variance of the prior on each weight.
        bias: Whether the layer has biases, which are not regularised.
    """
    path = [strength / 100, strength / 10, strength]  # from a strong regularisation, where L-BFGS starts safely
    return _path(features, targets, likelihood, num_outputs, strengths=path, bias=bias)[-1]


def _path(
    features: Tensor, targets: Tensor, likelihood: Likelihood, num_outputs: int, *, strengths: list[float], bias: bool
) -> list[Probe]:
    """Return the layers for increasing C, each sought from the one before."""
    X = features.double()
    mean = X.mean(0) if bias else torch.zeros_like(X[0])
    _, root, axes = torch.linalg.svd(X - mean, full_matrices=False)
    axes = axes[root > 1e-7 * root.max().clamp(min=1e-30)]
    coordinates = (X - mean) @ axes.T
    weight = torch.zeros(num_outputs, len(axes), dtype=torch.float64, device=X.device, requires_grad=True)
    shift = torch.zeros(num_outputs, dtype=torch.float64, device=X.device, requires_grad=bias)
    layers = []
    for strength in strengths:
        optimizer = torch.optim.LBFGS(
            [weight, shift] if bias else [weight],
            max_iter=200,
            tolerance_grad=1e-8,
            tolerance_change=1e-10,
            line_search_fn="strong_wolfe",
        )

        def loss(strength: float = strength, optimizer: torch.optim.Optimizer = optimizer) -> Tensor:
            optimizer.zero_grad()
            nll = -likelihood.log_likelihood(coordinates @ weight.T + shift, targets)
            total = (nll + weight.square().sum() / (2 * strength)) / len(X)
            total.backward()
            return total

        optimizer.step(loss)
        found = weight.detach() @ axes
        layers.append(Probe(found, shift.detach() - found @ mean, strength, float("nan")))
    return layers


def _folds(targets: Tensor) -> Tensor:
    """Return the fold of each example; the examples of a class are spread evenly over the folds."""
    classes = targets if targets.ndim == 1 and not targets.is_floating_point() else torch.zeros(len(targets))
    order = classes.argsort(stable=True)
    folds = torch.empty(len(targets), dtype=torch.long)
    folds[order] = torch.arange(len(targets)) % min(FOLDS, len(targets))
    return folds
