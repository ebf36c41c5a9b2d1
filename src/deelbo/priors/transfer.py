"""The priors of transfer learning: a backbone w around zero or its pretrained value, and a classifier V around zero.

| prior   | p(w)                      | p(V)          |   (Table 1 of the paper)
| ------- | ------------------------- | ------------- |
| L2-zero | N(0, lambda I)            | N(0, tau I)   |
| L2-SP   | N(mu, lambda I)           | N(0, tau I)   |
| PTYL    | N(mu, lambda Sigma)       | N(0, tau I)   |

mu are the weights at the time of the call, so make the prior before training starts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from torch import Tensor, nn

from deelbo.priors.covariance import Covariance, DiagonalPlusLowRank
from deelbo.priors.gaussian import GaussianPrior, PriorGroup, shaped_like
from deelbo.priors.head import split_head

Head = str | Iterable[str] | None


def l2_zero(model: nn.Module, head: Head = None, deterministic: Iterable[str] = ()) -> GaussianPrior:
    """Return the prior w ~ N(0, lambda I), V ~ N(0, tau I): learned weight decay.

    Args:
        model: A network with its pretrained weights.
        head: Name of the classifier; found in timm, torchvision and Hugging Face models if None.
        deterministic: The posterior's parameters that stay point estimates, and have no prior.

    Raises:
        ValueError: If the head is not found.
    """
    backbone, classifier = split_head(model, head, deterministic)
    return _transfer(backbone, classifier)


def l2_sp(model: nn.Module, head: Head = None, deterministic: Iterable[str] = ()) -> GaussianPrior:
    """Return the prior w ~ N(mu, lambda I), V ~ N(0, tau I) around the current backbone ("starting point").

    Args:
        model: A network with its pretrained weights; a copy of the backbone's is kept.
        head: Name of the classifier; found in timm, torchvision and Hugging Face models if None.
        deterministic: The posterior's parameters that stay point estimates, and have no prior.

    Raises:
        ValueError: If the head is not found.
    """
    backbone, classifier = split_head(model, head, deterministic)
    return _transfer(backbone, classifier, mean=list(backbone.values()))


def ptyl(
    model: nn.Module,
    head: Head,
    mean: Tensor,
    variance: Tensor,
    deviations: Tensor,
    rank: int = 5,
    diagonal: float = 0.1,
    deterministic: Iterable[str] = (),
) -> GaussianPrior:
    r"""Return the prior w ~ N(mean, lambda Sigma), V ~ N(0, tau I) of "Pre-Train Your Loss".

    Sigma = 1/2 ( diag(variance) + Q Q^T / (K - 1) ) + diagonal * I, where Q^T are the first K = rank deviations:
    a SWAG posterior of the source task. K = 1 divides by 1, and rank = 0 leaves the diagonal.

    Args:
        model: A network of the source task's architecture.
        head: Name of the classifier; found in timm, torchvision and Hugging Face models if None.
        deterministic: The posterior's parameters that stay point estimates, and have no prior.
        mean: SWAG mean of the F backbone weights, flat, in the order of `named_parameters`.
        variance: SWAG variances, of length F; values below zero (rounding) count as zero.
        deviations: Rows of deviations from the mean, [at least K, F].
        rank: K, how many deviations to use.
        diagonal: Added to the diagonal; without it the covariance is nearly singular.

    Raises:
        ValueError: If a size does not fit the backbone, a value is not finite, or the rank is not available.
    """
    backbone, classifier = split_head(model, head, deterministic)
    weights = list(backbone.values())
    size = sum(w.numel() for w in weights)
    if deviations.ndim != 2 or deviations.shape[1] != size:
        raise ValueError(f"deviations must be [K, {size}] for this backbone, not {list(deviations.shape)}")
    if not 0 <= rank <= len(deviations):
        raise ValueError(f"rank={rank}, but {len(deviations)} deviations are given")
    for name, values in (("mean", mean), ("variance", variance), ("deviations", deviations[:rank])):
        if not bool(values.isfinite().all()):
            raise ValueError(f"the {name} of the source posterior has values that are not finite")
    scale = 1 / math.sqrt(2 * max(rank - 1, 1))
    covariance = DiagonalPlusLowRank(
        [v.clamp_(min=0).mul_(0.5).add_(diagonal) for v in shaped_like(weights, variance, "variance")],
        [[u.mul_(scale) for u in shaped_like(weights, row, "deviations")] for row in deviations[:rank]],
    )
    return _transfer(backbone, classifier, mean, covariance)


def per_layer(
    model: nn.Module, head: Head = None, start: bool = True, deterministic: Iterable[str] = ()
) -> GaussianPrior:
    """Return a prior with a learned variance for every layer: N(mu_l, v_l I), and N(0, tau I) for the head.

    Args:
        model: A network with its pretrained weights.
        head: Name of the classifier; found in timm, torchvision and Hugging Face models if None.
        deterministic: The posterior's parameters that stay point estimates, and have no prior.
        start: Whether the layers are centred at their current weights (as L2-SP) or at zero (as L2-zero).

    Raises:
        ValueError: If the head is not found.
    """
    backbone, classifier = split_head(model, head, deterministic)
    layers = dict.fromkeys(name.rpartition(".")[0] or name for name in backbone)
    groups: dict[str, PriorGroup] = {}
    for layer in layers:
        own = {n: p for n, p in backbone.items() if (n.rpartition(".")[0] or n) == layer}
        # A layer of the backbone may be called "head"; that name is the classifier's.
        groups[layer if layer != "head" else "backbone head"] = PriorGroup(
            own, mean=list(own.values()) if start else None
        )
    return GaussianPrior({**groups, "head": PriorGroup(classifier)})


def _transfer(
    backbone: dict[str, nn.Parameter],
    classifier: dict[str, nn.Parameter],
    mean: Tensor | list[nn.Parameter] | None = None,
    covariance: Covariance | None = None,
) -> GaussianPrior:
    groups = {"backbone": PriorGroup(backbone, mean, covariance)} if backbone else {}
    return GaussianPrior({**groups, "head": PriorGroup(classifier)})
