"""A prior with a learned variance for every layer of the backbone, centred at the pretrained weights or at zero."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from deelbo._head import Head, split_head
from deelbo.priors.base import PRIORS, PriorRecipe
from deelbo.priors.gaussian import GaussianPrior, PriorGroup


def per_layer(
    model: nn.Module, head: Head = None, start: bool = True, deterministic: Iterable[str] = ()
) -> GaussianPrior:
    """Return a prior with a learned variance for every layer: N(mu_l, v_l I), and N(0, tau I) for the head.

    Args:
        model: A network with its pretrained weights.
        head: Name of the classifier; found automatically in timm, torchvision and Hugging Face models if None.
        deterministic: Names of parameters that stay point estimates in the posterior, and so have no prior.
        start: Whether the layers are centred at their current weights (as L2-SP) or at zero (as L2-zero).

    Raises:
        ValueError: If the head is not found.
    """
    backbone, classifier = split_head(model, head, deterministic)
    layers = dict.fromkeys(name.rpartition(".")[0] or name for name in backbone)
    groups: dict[str, PriorGroup] = {}
    for layer in layers:
        weights = {n: p for n, p in backbone.items() if (n.rpartition(".")[0] or n) == layer}
        # A layer of the backbone may be called "head", but that name is reserved for the classifier.
        groups[layer if layer != "head" else "backbone head"] = PriorGroup(
            weights, mean=list(weights.values()) if start else None
        )
    return GaussianPrior({**groups, **({"head": PriorGroup(classifier)} if classifier else {})})


@PRIORS.register("per-layer", "like l2-sp, with a variance for every layer")
class PerLayer(PriorRecipe):
    """w_l ~ N(mu_l, v_l I) for every layer l, V ~ N(0, tau I); too many variances for a search."""

    name = "per-layer"

    def make(self, network: nn.Module, head: Head = None) -> GaussianPrior:
        """Return `per_layer(network, head)`."""
        return per_layer(network, head)
