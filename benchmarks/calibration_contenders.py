"""The contenders of `calibration.py`: the probabilities that each gives, from what was computed of a kept network."""

from __future__ import annotations

import math
from pathlib import Path

import safetensors.torch
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from deelbo._files import read_tensors
from deelbo.likelihoods import Categorical
from deelbo.likelihoods.temperature import held_out_factor, training_set_factor
from deelbo.training.calibration import SPREAD, free_factor, held_out_calibration
from deelbo.training.last_layer import LastLayer, usual_margin
from deelbo.training.probe import fit_layer
from deelbo.training.ridge import effective_dimension, fit_ridge
from deelbo.training.start import Start

PLAIN, BEST = "as it is", "best temperature (by the test set)"
DEELBO, DIMENSION, HEAD = "free temperature (deelbo's)", "free temperature, D_e / N", "free temperature, D_h / N"
BEFORE = "free temperature, D_e / sqrt(100 N), the rule before"
LEFT, LEFT_BEST = "what the default leaves", "the same, with its best temperature (by the test set)"
Contenders = dict[str, tuple[Tensor, float | None]]


def dimension(features: Tensor) -> float:
    """Return the effective dimension of features."""
    centred = features.double() - features.double().mean(0)
    return effective_dimension(torch.linalg.svdvals(centred).square(), len(features))


def known_before(labels: Tensor, dimension: float, accuracy: Tensor, information: Tensor) -> Start:
    """Return what was known before a network was trained, from the training labels and what was kept of its start."""
    guessing = float(torch.special.entr(labels.bincount().double() / len(labels)).sum())
    left_out = {"accuracy": float(accuracy), "nll": guessing - float(information)}
    return Start(dimension=dimension, guessing=guessing, frozen_features=left_out)


def factor_before(logits: Tensor, labels: Tensor, start: Start) -> float:
    """Return the free factor by the rule before."""
    assert start.dimension is not None
    return min(1.0, training_set_factor(logits, labels, Categorical(), start.dimension / math.sqrt(100 * len(labels))))


def laplace_last_layer(seen: dict[str, Tensor]) -> Tensor:
    r"""Return log-probabilities under Laplace's approximation over the last layer with the learned tau.

    The Hessian of a class is sum_j w_j h_j h_j^T + I / tau, with w the mean of p (1 - p) over classes; logits are
    divided by sqrt(1 + pi/8 variance) (MacKay).
    """
    h, tested, tau = seen["train_h"].double(), seen["test_h"].double(), float(seen["tau"])
    p = seen["train_z"].double().softmax(1)
    root = (p * (1 - p)).mean(1).sqrt()[:, None] * h
    inner = torch.linalg.inv(torch.eye(len(h), dtype=torch.float64) + tau * root @ root.T)
    cross = tested @ root.T
    variance = tau * tested.square().sum(1) - tau**2 * ((cross @ inner) * cross).sum(1)
    return (seen["test_z"].double() / (1 + math.pi / 8 * variance[:, None]).sqrt()).log_softmax(1)


def contenders(seen: dict[str, Tensor], name: str, out: Path) -> Contenders:
    """Return the logarithms of each contender's test probabilities, and its temperature if it has one."""
    likelihood = Categorical()
    z, y, tested, labels = seen["train_z"].double(), seen["train_y"], seen["test_z"].double(), seen["test_y"]
    directions = dimension(seen["frozen"])
    start = known_before(y, directions, seen["frozen_accuracy"], seen["information"])
    share = float(seen["V"].square().sum()) / (seen["V"].numel() * float(seen["tau"]))
    free = free_factor(z, y, likelihood, start, len(y))
    factors = {
        PLAIN: 1.0,
        DEELBO: free,
        BEFORE: factor_before(z, y, start),
        DIMENSION: min(1.0, training_set_factor(z, y, likelihood, directions / len(y))),
        HEAD: training_set_factor(z, y, likelihood, share),
        "free temperature, the same penalty for all": min(1.0, training_set_factor(z, y, likelihood, 1.0)),
        BEST: held_out_factor(tested, labels, likelihood),
        **fold_factors(out / "networks" / name / "folds", free),
    }
    found: Contenders = {title: ((factor * tested).log_softmax(1), 1 / factor) for title, factor in factors.items()}
    found["Laplace, last layer"] = laplace_last_layer(seen), None
    found |= new_classifiers(seen, start.pull(len(y), float(likelihood(z, y))))
    ridge = fit_ridge(seen["train_h"], y, likelihood, z.shape[1])
    head = seen["test_h"].double() @ ridge.weight.T + ridge.bias
    found["new classifier on the trained features, leave-one-out"] = head.log_softmax(1), None
    for path in (out / "networks" / f"{name}.{kind}.safetensors" for kind in ("other", "linearised")):
        for title, logits in safetensors.torch.load_file(path).items() if path.exists() else ():
            found[title] = logits.double().log_softmax(1), None
    return found | as_left(found, tested, labels, out / "networks" / f"{name}.default.safetensors")


def as_left(found: Contenders, tested: Tensor, labels: Tensor, path: Path) -> Contenders:
    """Return what the default leaves: images with the free temperature, texts with a fitted classifier."""
    if path.exists():
        tested = safetensors.torch.load_file(path)["test_z"].double()
        found = {DEELBO: (tested.log_softmax(1), 1.0)}
    factor = held_out_factor(tested, labels, Categorical())
    return {LEFT: found[DEELBO], LEFT_BEST: ((factor * tested).log_softmax(1), 1 / factor)}


def new_classifiers(seen: dict[str, Tensor], pull: float) -> Contenders:
    """Return what classifiers say that are fitted to the trained features by logistic regression: other classes too."""
    features, y, tested = seen["train_h"].double(), seen["train_y"], seen["test_h"].double()
    classes = seen["train_z"].shape[1]
    usual = LogisticRegression(max_iter=1000).fit(features, y)
    found: Contenders = {
        "new classifier, scikit-learn's default (SetFit's)": (torch.from_numpy(usual.predict_log_proba(tested)), None)
    }
    margin = usual_margin(float(seen["information"]))
    last = LastLayer(nn.Linear(features.shape[1], classes, dtype=torch.float64), margin)
    last.fit(features, y, Categorical())
    with torch.no_grad():
        found["new classifier, penalty on its margin (deelbo's for texts)"] = last.layer(tested).log_softmax(1), None
    # The free temperature's penalty, pi |W|^2 / (2 |V|^2) beside the mean NLL, for weights in all directions.
    variance = float(seen["V"].double().square().sum()) / (len(y) * max(pull, 1e-6))
    layer = fit_layer(features, y, Categorical(), classes, variance)
    logits = tested @ layer.weight.T + layer.bias
    found["new classifier, the free temperature's penalty"] = logits.log_softmax(1), None
    return found


def fold_factors(folder: Path, free: float) -> dict[str, float]:
    """Return the factors that networks trained without a fifth of the examples suggest, for those that were trained."""
    likelihood = Categorical()
    found = [read_tensors(path)[0] for path in sorted(folder.glob("?.safetensors"))]
    if not found:
        return {}
    first = found[0]["outputs"], found[0]["targets"]
    factors = {
        "held-out fifth": held_out_factor(*first, likelihood, 1.0, SPREAD),
        "held-out fifth, around the free temperature": held_out_factor(*first, likelihood, free, SPREAD),
    }
    if len(found) > 1:
        scaled = torch.cat([part["factor"] * part["outputs"] for part in found])
        targets = torch.cat([part["targets"] for part in found])
        plain = torch.cat([part["outputs"] for part in found])
        factors[f"{len(found)} folds, temperature of all"] = held_out_factor(plain, targets, likelihood, 1.0, SPREAD)
        factors[f"{len(found)} folds (deelbo's)"] = free / held_out_calibration(scaled, targets, likelihood).temperature
    return factors
