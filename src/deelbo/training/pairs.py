r"""Pairs before classes: features of one class are drawn together, those of others apart; then a classifier is fitted.

With cos_ij the cosine of the features of examples i and j of a batch, the loss of a step is

    1/2 mean over pairs of one class of (1 - cos_ij)^2  +  1/2 mean over all other pairs of cos_ij^2 ,

the loss that sentence encoders know from their own training, and by which SetFit fine-tunes them. It takes the place of
the negative log-likelihood in the objective: weights are drawn, variances and scale are learned as in other runs. After
the last step the classifier is fitted to the features (`last_layer.py`). docs/choosing.md#pairs-before-classes has what
was measured.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from deelbo.likelihoods.categorical import IGNORED

SHARPNESS = 10.0  # logits of a cosine of 1, where class means of a batch stand for a classifier


def pair_loss(features: Tensor, labels: Tensor) -> Tensor:
    """Return the loss of all pairs of a batch; the half without any pair counts as zero.

    Args:
        features: Features of the examples, [examples, features].
        labels: Classes of the examples; those that are ignored are left out.

    Example:
        >>> import torch
        >>> from deelbo.training.pairs import pair_loss
        >>> features = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 3.0]])  # the first two in one direction
        >>> pair_loss(features, torch.tensor([0, 0, 1])).item()
        0.0
        >>> pair_loss(features, torch.tensor([0, 1, 1])).item()  # (1/2) (1 - 0)^2 + (1/2) (1 + 0) / 2
        0.75
    """
    known = labels != IGNORED
    unit = F.normalize(features[known], dim=1)
    cosines, labels = unit @ unit.T, labels[known]
    same = labels[:, None] == labels
    other = ~torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    return 0.5 * _mean_square(1 - cosines, same & other) + 0.5 * _mean_square(cosines, ~same)


def _mean_square(values: Tensor, chosen: Tensor) -> Tensor:
    return (values.square() * chosen).sum() / chosen.sum().clamp(min=1)


def class_mean_logits(features: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """Return logits of each example by its cosines with the class means of all others: what the history shows.

    Args:
        features: Features of the examples, [examples, features].
        labels: Classes of the examples; those that are ignored belong to no class.
        num_classes: Number of classes; one of which the batch has no other example gets the logit of a right angle.

    Example:
        >>> import torch
        >>> from deelbo.training.pairs import class_mean_logits
        >>> features = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 3.0], [0.0, 1.0]])
        >>> class_mean_logits(features, torch.tensor([0, 0, 1, 1]), 2).argmax(1).tolist()
        [0, 0, 1, 1]
    """
    unit = F.normalize(features, dim=1)
    known = labels != IGNORED
    member = F.one_hot(labels.clamp(min=0), num_classes).to(unit) * known[:, None]
    others = (member.T @ unit)[None] - member[:, :, None] * unit[:, None]  # sums without the example itself
    return SHARPNESS * torch.einsum("nd,ncd->nc", unit, F.normalize(others, dim=2, eps=1e-6))
