r"""A Gaussian around the weights with the curvature of the log posterior there: Laplace's approximation.

In each group of the prior N(mean, v Sigma), with p = 1/v and the Fisher diagonal F,

    q(theta) = N(theta*, H^-1),    H = diag(F) + p Sigma^-1.

Sigma^-1 = diag(a) - B B^T has K columns B (none for L2-zero and L2-SP), so with P = diag(F + p a), G = B^T P^-1 B
and C = (I/p - G)^-1 nothing larger than K x K is ever factorised:

    log det H = log det P + log det(I - p G)
    H^-1      = P^-1 + P^-1 B C B^T P^-1
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from deelbo._seeds import mix
from deelbo.laplace.fisher import empirical_fisher
from deelbo.likelihoods import Likelihood
from deelbo.priors import GaussianPrior, PriorGroup
from deelbo.training.batches import Inputs

BOUND = 1e12  # of variances and precisions, where nothing holds them; beyond, float32 gradients overflow


def laplace_posterior(
    network: nn.Module,
    prior: GaussianPrior,
    batches: Iterable[tuple[Inputs, Tensor]],
    log_likelihood: float,
    share: float = 1.0,
    likelihood: Likelihood | None = None,
) -> LaplacePosterior:
    """Return Laplace's approximation of a classifier at its weights.

    Args:
        network: Any network that gives logits.
        prior: Over its trainable parameters.
        batches: Inputs and labels of the training set, or of some of it.
        log_likelihood: The sum over the training set.
        share: How much of the training set the batches are.
        likelihood: Likelihood of the targets; categorical (classes) if None.

    Raises:
        ValueError: If a weight is complex.
    """
    groups = prior.named_groups()
    weights = [weight for group in groups.values() for weight in group.weights]
    if any(weight.is_complex() for weight in weights):
        raise ValueError("Laplace's approximation is for real weights, and some are complex")
    fisher = iter(empirical_fisher(network, weights, batches, likelihood))
    scaled = {name: [next(fisher).div_(share) for _ in group.weights] for name, group in groups.items()}
    return LaplacePosterior(prior, scaled, log_likelihood)


class LaplacePosterior:
    """Laplace's approximation at the weights in place, with a diagonal Fisher (Immer et al., 2021).

    Args:
        prior: Whose groups hold the network's weights; `best_variances` changes its variances.
        fisher: By group, F as tensors shaped like the group's weights.
        log_likelihood: log p(y | theta*), the sum over the training set.
    """

    def __init__(self, prior: GaussianPrior, fisher: Mapping[str, Sequence[Tensor]], log_likelihood: float) -> None:
        self.prior, self.log_likelihood = prior, log_likelihood
        self.groups = [_Group(group, fisher[name]) for name, group in prior.named_groups().items()]

    def log_marginal_likelihood(self) -> float:
        r"""Return log p(y) \approx log p(y | theta*) + log p(theta*) - 1/2 log det(H / 2 pi)."""
        size = sum(each.group.num_params for each in self.groups)
        log_det = sum(each.log_det() for each in self.groups)
        return self.log_likelihood + float(self.prior.log_prob()) + 0.5 * (size * math.log(2 * math.pi) - log_det)

    def best_variances(self) -> None:
        """Set every learned prior variance to where the log marginal likelihood has its only maximum."""
        for each in self.groups:
            if each.group.learned:
                each.group.variance = each.best_variance()

    @contextmanager
    def sample(self, seed: int, temperature: float = 1.0) -> Iterator[None]:
        """Let the weights be a draw from N(theta*, temperature H^-1) inside the block.

        Args:
            seed: Of the draw.
            temperature: Of the covariance.
        """
        weights = [weight for each in self.groups for weight in each.group.weights]
        kept = [weight.detach().clone() for weight in weights]
        try:
            with torch.no_grad():
                for number, each in enumerate(self.groups):
                    each.add_noise(mix(seed, number), math.sqrt(temperature))
            yield
        finally:
            with torch.no_grad():
                for weight, value in zip(weights, kept, strict=True):
                    weight.copy_(value)


class _Group:
    """One group: its Fisher F, and Sigma^-1 = diag(a) - B B^T of its prior."""

    def __init__(self, group: PriorGroup, fisher: Sequence[Tensor]) -> None:
        self.group, self.fisher = group, list(fisher)
        self.rank = len(group.covariance.inverse_part(0, group.weights[0])[1])

    def _parts(self, precision: float) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield F, P and B^T of each weight, flat; B^T is [K, size]."""
        for i, (fisher, weight) in enumerate(zip(self.fisher, self.group.weights, strict=True)):
            inverse, columns = self.group.covariance.inverse_part(i, weight)
            yield fisher.flatten(), fisher.flatten() + precision * inverse, columns

    def _low_rank(self, precision: float, weighted: bool = False) -> Tensor:
        """Return G = B^T P^-1 B, or with `weighted` B^T P^-1 F P^-1 B, [K, K] in float64."""
        total = torch.zeros(self.rank, self.rank, dtype=torch.float64)
        if self.rank:
            for fisher, diagonal, columns in self._parts(precision):
                scaled = columns.double() / diagonal.double()
                if weighted:
                    total += (scaled * fisher.double() @ scaled.T).cpu()
                else:
                    total += (scaled @ columns.double().T).cpu()
        return total

    def _inner(self, precision: float) -> Tensor:
        """Return C = (I/p - G)^-1."""
        return torch.linalg.inv(torch.eye(self.rank, dtype=torch.float64) / precision - self._low_rank(precision))

    def log_det(self) -> float:
        """Return log det H."""
        precision = 1 / self.group.variance
        total = sum(float(diagonal.log().sum(dtype=torch.float64)) for _, diagonal, _ in self._parts(precision))
        identity = torch.eye(self.rank, dtype=torch.float64)
        return total + float(torch.logdet(identity - precision * self._low_rank(precision)))

    def effective_number(self, precision: float) -> float:
        """Return gamma = tr(H^-1 diag(F)), how many weights the data determine (MacKay, 1992)."""
        gamma = sum(float((f / d).sum(dtype=torch.float64)) for f, d, _ in self._parts(precision))
        if self.rank:
            gamma += float((self._inner(precision) * self._low_rank(precision, weighted=True)).sum())
        return gamma

    def best_variance(self) -> float:
        r"""Return 1/p where the log marginal likelihood has its maximum.

        With s = d^T Sigma^-1 d, its derivative in log p is (gamma(p) - p s) / 2: gamma falls and p s rises with p, so
        there is one maximum, the one that 100 steps of Adam find. In u = log p, log gamma(p) - u - log s has a slope
        between -2 and -1, so a step of 2/3 of it leaves at most a third of the error, from anywhere.
        """
        scatter = self.group.quadratic()[0]
        if scatter <= 0:
            return 1 / BOUND
        limit, logarithm = math.log(BOUND), -math.log(self.group.variance)
        for _ in range(100):
            gamma = self.effective_number(math.exp(logarithm))
            if gamma <= 0:
                return BOUND
            missing = math.log(gamma) - logarithm - math.log(scatter)
            before, logarithm = logarithm, min(limit, max(-limit, logarithm + missing / 1.5))
            if abs(missing) < 1e-6 or logarithm == before:
                break
        return math.exp(-logarithm)

    def add_noise(self, seed: int, scale: float) -> None:
        """Add scale * (P^-1/2 z + P^-1 B C^1/2 z') to the weights."""
        generator = torch.Generator().manual_seed(seed)
        precision = 1 / self.group.variance
        mixed = torch.zeros(0)
        if self.rank:
            root = torch.linalg.cholesky(self._inner(precision))
            mixed = scale * root @ torch.randn(self.rank, generator=generator, dtype=torch.float64)
        for weight, (_, diagonal, columns) in zip(self.group.weights, self._parts(precision), strict=True):
            noise = torch.randn(weight.numel(), generator=generator, dtype=torch.float32).to(weight) * scale
            noise = noise / diagonal.sqrt()
            if self.rank:
                noise += (mixed.to(columns) @ columns) / diagonal
            weight.add_(noise.view(weight.shape))
