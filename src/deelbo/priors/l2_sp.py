"""L2-SP: a prior centred at the pretrained weights (the "starting point") for the backbone, at zero for the head."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from deelbo._head import Head, split_head
from deelbo.priors.base import PRIORS, PriorRecipe, SearchAxis, backbone_and_head
from deelbo.priors.gaussian import GaussianPrior, PriorGroup


def l2_sp(model: nn.Module, head: Head = None, deterministic: Iterable[str] = ()) -> GaussianPrior:
    """Return the prior w ~ N(mu, lambda I), V ~ N(0, tau I) around the current backbone ("starting point").

    Args:
        model: A network with its pretrained weights; the prior keeps a copy of the backbone's weights.
        head: Name of the classifier; found automatically in timm, torchvision and Hugging Face models if None.
        deterministic: Names of parameters that stay point estimates in the posterior, and so have no prior.

    Raises:
        ValueError: If the head is not found.

    Example:
        >>> import torch
        >>> from deelbo import priors
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        >>> priors.l2_sp(model, head="2").variances
        {'backbone': 1.0, 'head': 1.0}
    """
    backbone, classifier = split_head(model, head, deterministic)
    group = PriorGroup(backbone, mean=list(backbone.values())) if backbone else None
    return backbone_and_head(group, classifier)


@PRIORS.register("l2-sp", "backbone around its pretrained weights, classifier around zero")
class L2SP(PriorRecipe):
    """w ~ N(mu, lambda I), V ~ N(0, tau I); searches vary a strength for each."""

    name = "l2-sp"
    search_axes = (SearchAxis(("backbone",)), SearchAxis(("head",)))

    def make(self, network: nn.Module, head: Head = None) -> GaussianPrior:
        """Return `l2_sp(network, head)`."""
        return l2_sp(network, head)
