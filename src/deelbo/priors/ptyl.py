"""PTYL ("Pre-Train Your Loss"): a prior for the backbone with mean and covariance of a source task's posterior."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cached_property

from torch import Tensor, nn

from deelbo._files import file_fingerprint
from deelbo._head import Head, split_head
from deelbo.priors.base import PRIORS, PriorRecipe, SearchAxis, backbone_and_head
from deelbo.priors.covariance import DiagonalPlusLowRank
from deelbo.priors.gaussian import GaussianPrior, PriorGroup, shaped_like
from deelbo.priors.source_posterior import SourcePosterior, check_source_file, load_source_posterior


def ptyl(
    model: nn.Module,
    head: Head,
    mean: Tensor,
    variance: Tensor,
    deviations: Tensor,
    *,
    rank: int = 5,
    diagonal: float = 0.1,
    deterministic: Iterable[str] = (),
) -> GaussianPrior:
    r"""Return the prior w ~ N(mean, lambda Sigma), V ~ N(0, tau I) of "Pre-Train Your Loss".

    Sigma = 1/2 ( diag(variance) + Q Q^T / (K - 1) ) + diagonal * I, where Q^T are the first K = rank deviations:
    a SWAG posterior of the source task. K = 1 divides by 1, and rank = 0 leaves only the diagonal.

    Args:
        model: A network of the source task's architecture.
        head: Name of the classifier; found automatically in timm, torchvision and Hugging Face models if None.
        deterministic: Names of parameters that stay point estimates in the posterior, and so have no prior.
        mean: SWAG mean of the F backbone weights, flat, in the order of `named_parameters`.
        variance: SWAG variances, of length F; values below zero (rounding) count as zero.
        deviations: Rows of deviations from the mean, [at least K, F].
        rank: K, the number of deviations to use.
        diagonal: Number added to the diagonal of the covariance, which is nearly singular without it.

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
    return backbone_and_head(PriorGroup(backbone, mean, covariance), classifier)


def prior_from_source(
    source_posterior: SourcePosterior, model: nn.Module, head: Head = None, rank: int = 5, diagonal: float = 0.1
) -> GaussianPrior:
    """Return the prior w ~ N(mean, lambda Sigma), V ~ N(0, tau I) from a source task's posterior; see `ptyl`.

    Args:
        source_posterior: The posterior of the source task, from `deelbo.swag.collect` or a file.
        model: A network of the source task's architecture.
        head: Name of the classifier; found automatically in most networks if None.
        rank: Number of deviations to use, the newest ones; 0 for a diagonal covariance.
        diagonal: Number added to the diagonal of the covariance.

    Raises:
        ValueError: If the network is not the source task's, or the posterior has fewer deviations than the rank.
    """
    source_posterior.check(model, head)
    if rank > source_posterior.rank:
        raise ValueError(f"rank={rank}, but the source posterior has {source_posterior.rank} deviations")
    names = list(split_head(model, head)[0])
    mean, variance = source_posterior.flat("mean", names), source_posterior.flat("variance", names)
    deviations = source_posterior.flat("deviations", names, rank)
    return ptyl(model, head, mean, variance, deviations, rank=rank, diagonal=diagonal)


@PRIORS.register("ptyl", "backbone around a source task's posterior, as ptyl:FILE (see deelbo prior)")
class PTYL(PriorRecipe):
    """w ~ N(mean, lambda Sigma) of a source task, V ~ N(0, tau I); searches vary lambda itself and a strength of V."""

    name, takes_file = "ptyl", True
    search_axes = (SearchAxis(("backbone",), is_variance=True), SearchAxis(("head",)))

    @cached_property
    def source_posterior(self) -> SourcePosterior:
        """The posterior of the source task, read once."""
        return load_source_posterior(self.file, self.rank)

    def make(self, network: nn.Module, head: Head = None) -> GaussianPrior:
        """Return the prior from the source task's posterior."""
        return prior_from_source(self.source_posterior, network, head, self.rank, self.diagonal)

    def start(self, network: nn.Module, head: Head = None) -> None:
        """Put the backbone at the posterior's mean."""
        self.source_posterior.start(network, head)

    def fingerprint(self) -> str:
        """Return a hash of the file's content."""
        check_source_file(self.file)
        return file_fingerprint(self.file)
