r"""The Laplace approximation: a Gaussian around the weights with the curvature of the log posterior there.

In each group with the prior N(mean, v Sigma), precision p = 1/v and the diagonal F of the Fisher information,

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

BOUND = 1e12  # upper bound of prior variances and precisions; beyond it, float32 gradients overflow


def laplace_posterior(
    network: nn.Module,
    prior: GaussianPrior,
    batches: Iterable[tuple[Inputs, Tensor]],
    log_likelihood: float,
    *,
    share: float = 1.0,
    likelihood: Likelihood | None = None,
) -> LaplacePosterior:
    """Return the Laplace approximation of a classifier's posterior at its current weights.

    Args:
        network: Network that returns logits, or whatever the likelihood takes.
        prior: Prior over its trainable parameters.
        batches: Batches of inputs and targets: the training set, or a random part of it.
        log_likelihood: log p(y | theta*) at the current weights, summed over the whole training set.
        share: Fraction of the training set that the batches contain.
        likelihood: Likelihood of the targets; categorical (classes) if None.

    Raises:
        ValueError: If a weight is complex.

    Example:
        >>> import torch
        >>> from deelbo.laplace import laplace_posterior
        >>> from deelbo.priors import GaussianPrior, PriorGroup
        >>> model = torch.nn.Linear(4, 3)
        >>> x, y = torch.randn(20, 4), torch.randint(3, (20,))
        >>> prior = GaussianPrior({"all": PriorGroup(model.parameters())})
        >>> log_likelihood = -torch.nn.functional.cross_entropy(model(x), y, reduction="sum").item()
        >>> posterior = laplace_posterior(model, prior, [(x, y)], log_likelihood)
        >>> before = posterior.log_marginal_likelihood()
        >>> posterior.best_variances()  # learn the prior variance
        >>> posterior.log_marginal_likelihood() >= before
        True
    """
    groups = prior.named_groups()
    weights = [weight for group in groups.values() for weight in group.weights]
    if any(weight.is_complex() for weight in weights):
        raise ValueError("the Laplace approximation is for real weights, and some weights of the prior are complex")
    fisher = iter(empirical_fisher(network, weights, batches, likelihood))
    scaled = {name: [next(fisher).div_(share) for _ in group.weights] for name, group in groups.items()}
    return LaplacePosterior(prior, scaled, log_likelihood)


class LaplacePosterior:
    """Laplace approximation at the current weights, with a diagonal Fisher (Immer et al., 2021).

    Args:
        prior: Prior whose groups contain the network's weights; `best_variances` changes its variances.
        fisher: Diagonal F of the Fisher information by the name of the group, as tensors shaped like its weights.
        log_likelihood: log p(y | theta*), summed over the training set.

    Example:
        >>> import torch
        >>> from deelbo.laplace import LaplacePosterior
        >>> from deelbo.priors import GaussianPrior, PriorGroup
        >>> weight = torch.nn.Parameter(torch.zeros(3))
        >>> prior = GaussianPrior({"all": PriorGroup([weight])})  # N(0, I)
        >>> posterior = LaplacePosterior(prior, {"all": [torch.full((3,), 99.0)]}, log_likelihood=-5.0)
        >>> with posterior.sample(seed=0):  # a draw from N(0, I / (99 + 1))
        ...     0 < weight.abs().max() < 0.5
        tensor(True)
        >>> print(f"{posterior.log_marginal_likelihood():.2f}")  # -5 - 3/2 log(100)
        -11.91
    """

    def __init__(self, prior: GaussianPrior, fisher: Mapping[str, Sequence[Tensor]], log_likelihood: float) -> None:
        self.prior, self.log_likelihood = prior, log_likelihood
        self.groups = [_Group(group, fisher[name]) for name, group in prior.named_groups().items()]

    def log_marginal_likelihood(self) -> float:
        r"""Return log p(y) \approx log p(y | theta*) + log p(theta*) - 1/2 log det(H / 2 pi)."""
        size = sum(group.group.num_params for group in self.groups)
        log_det = sum(group.log_det() for group in self.groups)
        return self.log_likelihood + float(self.prior.log_prob()) + 0.5 * (size * math.log(2 * math.pi) - log_det)

    def best_variances(self) -> None:
        """Set every learned prior variance to the value that maximises the log marginal likelihood."""
        for group in self.groups:
            if group.group.learned:
                group.group.variance = group.best_variance()

    @contextmanager
    def sample(self, seed: int, scale: float = 1.0) -> Iterator[None]:
        """Let the weights be a draw from N(theta*, scale^2 H^-1) inside the block.

        Args:
            seed: Seed for the draw.
            scale: Factor of the standard deviations; 1 draws from the Laplace approximation itself.
        """
        weights = [weight for group in self.groups for weight in group.group.weights]
        means = [weight.detach().clone() for weight in weights]
        try:
            with torch.no_grad():
                for number, group in enumerate(self.groups):
                    group.add_noise(mix(seed, number), scale)
            yield
        finally:
            with torch.no_grad():
                for weight, mean in zip(weights, means, strict=True):
                    weight.copy_(mean)


class _Group:
    """A group of weights: its Fisher diagonal F, and Sigma^-1 = diag(a) - B B^T of its prior."""

    def __init__(self, group: PriorGroup, fisher: Sequence[Tensor]) -> None:
        self.group, self.fisher = group, list(fisher)
        self.rank = len(group.covariance.inverse_part(0, group.weights[0])[1])

    def _parts(self, precision: float) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield the flat F and P and the B^T [K, size] of each weight, at the prior precision p."""
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
        """Return gamma = tr(H^-1 diag(F)), the number of weights that the data determine (MacKay, 1992)."""
        gamma = sum(float((f / d).sum(dtype=torch.float64)) for f, d, _ in self._parts(precision))
        if self.rank:
            gamma += float((self._inner(precision) * self._low_rank(precision, weighted=True)).sum())
        return gamma

    def best_variance(self) -> float:
        r"""Return the variance v = 1/p that maximises the log marginal likelihood.

        With s = d^T Sigma^-1 d, the derivative in log p is (gamma(p) - p s) / 2: gamma falls and p s rises with p, so
        there is one maximum, the same that 100 steps of Adam find. As a function of u = log p, log gamma(p) - u - log s
        has a slope between -2 and -1, so adding 2/3 of it to u leaves at most a third of the error, from any start.
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
        """Add scale * (P^-1/2 z + P^-1 B C^1/2 z') to the weights, where z and z' are standard normal."""
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
