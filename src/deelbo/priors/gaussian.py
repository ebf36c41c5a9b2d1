"""Gaussian priors over named groups of weights, whose variances have a closed-form optimum."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from deelbo import _shards
from deelbo._vectors import LayoutCache, Rows
from deelbo._weight_passes import ChunkCache, TensorList, constants, grad_chunks, on_device
from deelbo.posteriors.masters import mean_of
from deelbo.posteriors.stationary import VarianceLines
from deelbo.priors.covariance import Covariance, Identity, OptionalChunks

if TYPE_CHECKING:
    from deelbo.posteriors import GaussianPosterior

Parameters = Mapping[str, nn.Parameter] | Iterable[nn.Parameter]
Reusable = Any  # what `quadratic` has computed and `add_gradient` can use: a matter of the path and the covariance


class PriorGroup(nn.Module):
    r"""A Gaussian N(theta_g | mean_g, v_g Sigma_g) over some parameters of a network.

    Args:
        parameters: Parameters of the group, by name (such as a part of `dict(model.named_parameters())`) or without.
        mean: Prior mean: one flat vector in the order of the parameters, or tensors shaped like them; zero if None.
        covariance: Matrix Sigma_g; the identity if None.
        variance: Initial value of the variance v_g, or its fixed value if not `learned`.
        learned: Whether training sets v_g to its optimum.

    Raises:
        ValueError: If there are no parameters, shapes differ, or the variance is not positive.

    Example:
        >>> import torch
        >>> from deelbo.priors import PriorGroup
        >>> layer = torch.nn.Linear(3, 2)
        >>> group = PriorGroup(dict(layer.named_parameters()), variance=0.5)  # N(0, 0.5 I)
        >>> group.names, group.num_params
        (['weight', 'bias'], 8)
        >>> normal = torch.distributions.Normal(0.0, 0.5**0.5)
        >>> expected = sum(normal.log_prob(p).sum().item() for p in layer.parameters())
        >>> abs(group.log_prob() - expected) < 1e-4
        True
    """

    def __init__(
        self,
        parameters: Parameters,
        mean: Tensor | Sequence[Tensor] | None = None,
        covariance: Covariance | None = None,
        variance: float = 1.0,
        learned: bool = True,
    ) -> None:
        super().__init__()
        named = parameters if isinstance(parameters, Mapping) else dict(enumerate(parameters))
        if not named:
            raise ValueError("a prior group needs at least one parameter, but `parameters` is empty")
        self.names = [str(name) for name in named]
        self.weights: list[nn.Parameter] = [mean_of(weight) for weight in named.values()]
        if not self.num_params:
            raise ValueError(f"the parameters of a prior group ({', '.join(self.names)}) have no elements: drop them")
        self.learned = learned
        self.mean = None if mean is None else TensorList(shaped_like(self.weights, mean, "mean"))
        self.covariance = Identity() if covariance is None else covariance
        self.variance = variance
        self._cache, self._layouts = ChunkCache(), LayoutCache()
        self._mean_row = None if self.mean is None else Rows([self.mean])
        self._inverse_diagonal: tuple[list[Tensor], OptionalChunks] | None = None

    def get_extra_state(self) -> Tensor:
        """Return the variance, for `state_dict`."""
        return torch.tensor(self.variance, dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        """Restore the variance from a `state_dict`."""
        self.variance = float(state)
        self._inverse_diagonal = None

    @property
    def variance(self) -> float:
        """The variance v_g, read from the device of the weights."""
        return float(self.variance_tensor)

    @variance.setter
    def variance(self, value: float) -> None:
        if not value > 0:
            raise ValueError(f"a prior variance must be positive (infinity for a flat prior), not {value}")
        # Not a buffer, so that it stays float64 when a network becomes float32.
        self.variance_tensor = torch.tensor(float(value), dtype=torch.float64)

    @property
    def num_params(self) -> int:
        """F, the number of weights in the group; a complex weight counts as two."""
        return sum(p.numel() * (2 if p.is_complex() else 1) for p in self.weights)

    @property
    def trace_inverse(self) -> float:
        """Trace tr(Sigma_g^-1) of the inverse covariance matrix."""
        return self.covariance.trace_inverse(self.num_params)

    def inverse_diagonal(self) -> OptionalChunks:
        """Return the chunks of diag(Sigma_g^-1), None for ones; a diagonal posterior needs them."""
        chunks = self._chunks()
        if self._inverse_diagonal is None or self._inverse_diagonal[0] is not chunks:
            self._inverse_diagonal = chunks, self.covariance.inverse_diagonal(self.weights, chunks)
        return self._inverse_diagonal[1]

    def quadratic(self) -> tuple[Tensor, Reusable]:
        """Return (theta - mean)^T Sigma_g^-1 (theta - mean) at the current weights, and parts for `add_gradient`."""
        value, reuse = self.local_quadratic()
        return _shards.total([value], self.weights[0])[0], reuse

    def local_quadratic(self) -> tuple[Tensor, Reusable]:
        """Return `quadratic`, but of sharded weights the part of this process, to be summed over processes."""
        if not on_device(self.weights[0]):
            return self.covariance.quadratic(self.weights, self._chunks(), self._mean_chunks())
        return self.covariance.pull(self._moves(), self.weights, self._layouts(self._chunks()))

    def _moves(self) -> list[Tensor]:
        """Return theta - mean in vectors, on the device path."""
        layout = self._layouts(self._chunks())
        vectors = layout.gather(self._chunks())
        if self._mean_row is not None:
            for vector, matrix in zip(vectors, self._mean_row(self.weights, layout), strict=True):
                vector.sub_(matrix[0])
        return vectors

    def log_prob(self) -> float:
        """Return log N(theta_g | mean_g, v_g Sigma_g) at the current weights."""
        log_det = self.num_params * math.log(2 * math.pi * self.variance) + self.covariance.log_det()
        return -0.5 * (log_det + float(self.quadratic()[0]) / self.variance)

    def kl(self, posterior: GaussianPosterior) -> float:
        r"""Return KL(q(theta_g) || p(theta_g)) at the current variance (Appendix B.2).

        1/2 [ (tr(Sigma^-1 S) + d^T Sigma^-1 d) / v - F + F log v + log det Sigma - log det S ],
        where d = theta_g - mean_g at the mean of q, and S is the covariance of q.
        """
        expected = posterior.trace(self) + float(self.quadratic()[0])
        log_dets = self.num_params * math.log(self.variance) + self.covariance.log_det() - posterior.log_det(self)
        return 0.5 * (expected / self.variance - self.num_params + log_dets)

    def add_gradient(self, weight: float | Tensor, reuse: Reusable = None) -> None:
        """Add weight * d(-log p)/d theta_g = weight * Sigma_g^-1 (theta_g - mean_g) / v_g to the gradients."""
        if on_device(self.weights[0]):
            _add_gradients([self], weight, [reuse])
            return
        grads = grad_chunks(self.weights, create=True)
        factor = float(weight / self.variance_tensor)
        chunks, mean = self._chunks(), self._mean_chunks()
        self.covariance.add_gradient(self.weights, chunks, mean, grads, weight=factor, reuse=reuse)

    def gradient(self, factor: Tensor, reuse: Reusable = None) -> list[Tensor]:
        """Return factor * Sigma_g^-1 (theta_g - mean_g) for each weight; for the device path."""
        pulls = reuse if reuse is not None else self.local_quadratic()[1]
        return self._layouts(self._chunks()).split([pull.mul_(factor.to(pull.device)) for pull in pulls])

    def _chunks(self) -> list[Tensor]:
        return self._cache(self.weights)

    def _mean_chunks(self) -> OptionalChunks:
        return [None] * len(self._chunks()) if self.mean is None else self.mean.chunks(self.weights)


class GaussianPrior(nn.Module):
    r"""p(theta) = prod_g N(theta_g | mean_g, v_g Sigma_g) with any number of named groups.

    Args:
        groups: Groups by name; together they must contain each trainable parameter of the network exactly once.

    Raises:
        ValueError: If a parameter is in two groups, or there is no group.

    Example:
        >>> import torch
        >>> from deelbo import IsotropicPosterior
        >>> from deelbo.priors import GaussianPrior, PriorGroup
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        >>> prior = GaussianPrior(
        ...     {
        ...         "body": PriorGroup(model[0].parameters(), mean=[p.detach() for p in model[0].parameters()]),
        ...         "head": PriorGroup(model[2].parameters(), learned=False),  # around zero, fixed variance
        ...     }
        ... )
        >>> _ = prior.update_variances(IsotropicPosterior(model, init_scale=0.1))
        >>> {name: round(variance, 4) for name, variance in prior.variances.items()}
        {'body': 0.01, 'head': 1.0}
    """

    def __init__(self, groups: Mapping[str, PriorGroup]) -> None:
        super().__init__()
        if not groups:
            raise ValueError("a prior needs at least one group, but `groups` is empty")
        owners: dict[int, str] = {}
        for group_name, group in groups.items():
            for name, weight in zip(group.names, group.weights, strict=True):
                if id(weight) in owners:
                    raise ValueError(f'parameter "{name}" is in the groups "{owners[id(weight)]}" and "{group_name}"')
                owners[id(weight)] = group_name
        # Stored by name, so that a saved state fits groups in another order; names of modules must not contain dots.
        self.groups = nn.ModuleDict({f"group:{name.replace('.', '/')}": group for name, group in groups.items()})
        self._names = list(groups)

    def named_groups(self) -> dict[str, PriorGroup]:
        """Return the groups by name."""
        return dict(zip(self._names, self.groups.values(), strict=True))  # type: ignore[arg-type]

    @property
    def variances(self) -> dict[str, float]:
        """Current variance v_g of each group by name, such as {"backbone": lambda, "head": tau}."""
        return {name: group.variance for name, group in self.named_groups().items()}

    def set_variances(self, variances: Mapping[str, float]) -> None:
        """Set the variances of some groups by hand, for MAP training or to plot the objective as a function of them.

        Args:
            variances: New variances by the name of the group; infinity for a flat prior.

        Raises:
            ValueError: If there is no group of that name, or a value is not positive.
        """
        groups = self.named_groups()
        for name, value in variances.items():
            if name not in groups:
                raise ValueError(f'the prior has no group "{name}"; its groups: {", ".join(groups)}')
            groups[name].variance = value

    def kl(self, posterior: GaussianPosterior) -> Tensor:
        """Return KL(q || p) at the current means and variances, as a float64 number without a graph."""
        with posterior.at_mean():
            return torch.tensor(sum(g.kl(posterior) for g in self.named_groups().values()), dtype=torch.float64)

    def log_prob(self) -> Tensor:
        """Return log p(theta) at the current weights: a draw inside a `sample()` block, else the mean of q.

        Of bfloat16 weights it is the mean inside the block too, unless this is called within `posterior.at_draw()`.
        """
        return torch.tensor(sum(group.log_prob() for group in self.named_groups().values()), dtype=torch.float64)

    def update_variances(
        self, posterior: GaussianPosterior, before: Callable[[VarianceLines], None] | None = None
    ) -> list[Reusable]:
        r"""Set every learned v_g to the value that maximises the objective given q (`eq:lambda_update`).

        v_g* = ( tr(Sigma_g^-1 S) + d^T Sigma_g^-1 d ) / F, with S = scale^2 I for the isotropic posterior.

        Args:
            posterior: Posterior q, with the covariance S.
            before: Called before with the best variances as functions of the scale, which it may set.

        Returns:
            Intermediate results of each group that `add_gradient` can reuse.
        """
        groups = list(self.named_groups().values())
        with posterior.at_mean():
            found = [group.local_quadratic() if group.learned else (None, None) for group in groups]
            learned = _shards.total([value for value, _ in found if value is not None], groups[0].weights[0])
            sums = iter(learned)
            lines = self._lines(posterior, [next(sums) if group.learned else None for group in groups])
            if before is not None:
                before(lines)
            variances = lines.at(posterior.square)
            for group, variance in zip(groups, variances.unbind(), strict=True):
                if group.learned:
                    group.variance_tensor = variance
        return [reuse for _, reuse in found]

    def _lines(self, posterior: GaussianPosterior, quadratics: list[Tensor | None]) -> VarianceLines:
        """Return the best variances as functions of the posterior's squared scale."""
        groups, device = list(self.named_groups().values()), posterior.device
        traces = posterior.unit_traces(groups)
        slopes = [t / group.num_params if group.learned else 0.0 for t, group in zip(traces, groups, strict=True)]
        sizes = constants([float(group.num_params if group.learned else 1) for group in groups], device)
        starts = [
            (group.variance_tensor if quadratic is None else quadratic).to(device)
            for group, quadratic in zip(groups, quadratics, strict=True)
        ]
        start = torch.stack(starts) / sizes
        return VarianceLines(start, constants(slopes, device), constants(traces, device), posterior.num_params)

    def add_gradient(self, weight: float | Tensor, reuse: Sequence[Reusable] | None = None) -> None:
        """Add weight * d(-log p)/d theta to the gradients: the penalty of MAP training, or d KL / d mean.

        Args:
            weight: Factor of the gradient, such as 1 / (kappa N).
            reuse: Result of `update_variances` at the same weights, which saves time.
        """
        groups = list(self.named_groups().values())
        reuse = reuse or [None] * len(groups)
        if on_device(groups[0].weights[0]):
            _add_gradients(groups, weight, reuse)
            return
        for group, parts in zip(groups, reuse, strict=True):
            group.add_gradient(weight, parts)


def _add_gradients(groups: Sequence[PriorGroup], weight: float | Tensor, reuse: Sequence[Reusable]) -> None:
    """Do `add_gradient` of several groups on the device path, with as few kernels as possible."""
    device = groups[0].weights[0].device
    weight = weight if isinstance(weight, Tensor) else constants([weight], device)[0]
    factors = torch._foreach_div([weight] * len(groups), [group.variance_tensor.to(weight) for group in groups])
    grads = grad_chunks([w for group in groups for w in group.weights], create=True)
    parts = zip(groups, factors, reuse, strict=True)
    pieces = [piece for group, factor, part in parts for piece in group.gradient(factor, part)]
    torch._foreach_add_(grads, pieces)  # type: ignore[arg-type]


def shaped_like(weights: Sequence[Tensor], values: Tensor | Sequence[Tensor], what: str) -> list[Tensor]:
    """Return values as tensors of the weights' shapes, dtypes and devices.

    Args:
        weights: Parameters of a group.
        values: One flat vector over all parameters in order, or one tensor for each parameter.
        what: Name of the values in error messages, such as "mean".

    Raises:
        ValueError: If the sizes of values and weights differ.
    """
    if isinstance(values, Tensor):
        size = sum(w.numel() for w in weights)
        if values.shape != (size,):
            raise ValueError(f"{what} must be a vector of the {size} weights of its group, not {tuple(values.shape)}")
        values = values.split([w.numel() for w in weights])
    if len(values) != len(weights) or any(v.numel() != w.numel() for v, w in zip(values, weights, strict=True)):
        raise ValueError(f"{what} must be one tensor for each of the {len(weights)} parameters, of the same shapes")
    return [_copy_like(w, v.detach()) for v, w in zip(values, weights, strict=True)]


def _copy_like(weight: Tensor, values: Tensor) -> Tensor:
    """Return a copy of values in shape, dtype and device of a weight, sharded if the weight is."""
    copy = torch.empty_like(weight, requires_grad=False)
    if _shards.is_sharded(values) or not _shards.is_sharded(weight):
        return copy.copy_(values.reshape(weight.shape))
    _shards.local(copy).copy_(_shards.part_of(values, weight))
    return copy
