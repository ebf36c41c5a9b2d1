"""L2-zero: a prior centred at zero for backbone and classifier, so that a weight decay is learned for each."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from deelbo._head import Head, split_head
from deelbo.priors.base import PRIORS, PriorRecipe, SearchAxis, backbone_and_head
from deelbo.priors.gaussian import GaussianPrior, PriorGroup


def l2_zero(model: nn.Module, head: Head = None, deterministic: Iterable[str] = ()) -> GaussianPrior:
    """Return the prior w ~ N(0, lambda I), V ~ N(0, tau I): learned weight decay.

    Args:
        model: A network with its pretrained weights.
        head: Name of the classifier; found automatically in timm, torchvision and Hugging Face models if None.
        deterministic: Names of parameters that stay point estimates in the posterior, and so have no prior.

    Raises:
        ValueError: If the head is not found.

    Example:
        >>> import torch
        >>> from deelbo import priors
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        >>> priors.l2_zero(model, head="2").variances
        {'backbone': 1.0, 'head': 1.0}
    """
    backbone, classifier = split_head(model, head, deterministic)
    return backbone_and_head(PriorGroup(backbone) if backbone else None, classifier)


@PRIORS.register("l2-zero", "weights around zero (learned weight decay)")
class L2Zero(PriorRecipe):
    """w ~ N(0, lambda I), V ~ N(0, tau I); searches vary one strength for both."""

    name = "l2-zero"
    search_axes = (SearchAxis(("backbone", "head")),)

    def make(self, network: nn.Module, head: Head = None) -> GaussianPrior:
        """Return `l2_zero(network, head)`."""
        return l2_zero(network, head)
