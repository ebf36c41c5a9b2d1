"""The matrix Sigma_g in the covariance v_g Sigma_g of a prior group: the identity, or diagonal plus low rank.

No matrix of size F x F is ever built: the KL divergence and its gradient need only tr(Sigma^-1), log det Sigma,
diag(Sigma^-1) and products Sigma^-1 d, which are computed chunk by chunk.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from deelbo._shards import is_sharded
from deelbo._vectors import Layout, Rows
from deelbo._weight_passes import TensorList, buffer, over_chunks, split, sum_of_squares, wide

Chunks = Sequence[Tensor]
OptionalChunks = Sequence[Tensor | None]
Quadratic = tuple[Tensor, Tensor | None]


class Covariance(nn.Module, ABC):
    """Covariance matrix Sigma over the F weights of a prior group.

    In the methods, `weights` are the parameters of the group and `chunks` their flat chunks, `mean` are the chunks of
    the prior mean (None for zeros), d = weights - mean, and `reuse` is the second result of `quadratic`. On the device
    path d comes in vectors, and `precision_times` serves for both the quadratic form and its gradient.
    """

    @abstractmethod
    def trace_inverse(self, num_params: int) -> float:
        """Return tr(Sigma^-1), where `num_params` is F."""

    @abstractmethod
    def log_det(self) -> float:
        """Return log det Sigma."""

    @abstractmethod
    def inverse_diagonal(self, weights: Sequence[Tensor], chunks: Chunks) -> OptionalChunks:
        """Return the chunks of diag(Sigma^-1); None for a chunk of ones."""

    @abstractmethod
    def inverse_part(self, index: int, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return a (flat, or one number) and B^T [K, size] of Sigma^-1 = diag(a) - B B^T, for one weight."""

    @abstractmethod
    def precision_times(self, vectors: list[Tensor], weights: Sequence[Tensor], layout: Layout) -> list[Tensor]:
        """Return Sigma^-1 d, where d has the given vectors in the layout of the weights."""

    @abstractmethod
    def quadratic(
        self, weights: Sequence[Tensor], chunks: Chunks, mean: OptionalChunks
    ) -> tuple[Tensor, Tensor | None]:
        """Return d^T Sigma^-1 d, and intermediate results that `add_gradient` can reuse at the same weights."""

    @abstractmethod
    def add_gradient(
        self,
        weights: Sequence[Tensor],
        chunks: Chunks,
        mean: OptionalChunks,
        grads: OptionalChunks,
        *,
        weight: float,
        reuse: Tensor | None,
    ) -> None:
        """Add weight * Sigma^-1 d to the gradients `grads`."""


def deviation(weight: Tensor, mean: Tensor | None) -> Tensor:
    """Return weight - mean in the scratch buffer of slot 0, or the weight itself if the mean is None (zero)."""
    return weight if mean is None else torch.sub(weight, mean, out=buffer(weight))


class Identity(Covariance):
    """Sigma = I, as in the priors L2-zero and L2-SP."""

    def trace_inverse(self, num_params: int) -> float:
        """Return tr(I) = F."""
        return float(num_params)

    def log_det(self) -> float:
        """Return log det I = 0."""
        return 0.0

    def inverse_diagonal(self, weights: Sequence[Tensor], chunks: Chunks) -> OptionalChunks:
        """Return None for every chunk, which stands for ones."""
        return [None] * len(chunks)

    def inverse_part(self, index: int, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return a = 1 and an empty B^T."""
        return torch.ones((), dtype=weight.dtype, device=weight.device), weight.new_empty(0, weight.numel())

    def precision_times(self, vectors: list[Tensor], weights: Sequence[Tensor], layout: Layout) -> list[Tensor]:
        """Return d itself."""
        return vectors

    def quadratic(
        self, weights: Sequence[Tensor], chunks: Chunks, mean: OptionalChunks
    ) -> tuple[Tensor, Tensor | None]:
        """Return d^T d = |d|^2, and nothing to reuse."""
        return over_chunks(lambda k, w, m: sum_of_squares(deviation(w, m)), chunks, mean), None

    def add_gradient(
        self,
        weights: Sequence[Tensor],
        chunks: Chunks,
        mean: OptionalChunks,
        grads: OptionalChunks,
        *,
        weight: float,
        reuse: Tensor | None,
    ) -> None:
        """Add weight * d to the gradients."""

        def task(k: int, w: Tensor, m: Tensor | None, grad: Tensor) -> None:
            grad.add_(deviation(w, m), alpha=weight)

        over_chunks(task, chunks, mean, grads)


class DiagonalPlusLowRank(Covariance):
    r"""Sigma = A + U U^T with A diagonal and U of shape [F, K] (Appendix B.3).

    With M = I_K + U^T A^-1 U = L L^T (Cholesky) and t = M^-1 U^T A^-1 d, Woodbury and the determinant lemma give

        Sigma^-1 d         = A^-1 (d - U t)
        d^T Sigma^-1 d     = d^T A^-1 d - t^T U^T A^-1 d
        tr(Sigma^-1)       = tr(A^-1) - tr(M^-1 U^T A^-2 U)
        log det(Sigma)     = log det(A) + 2 sum_k log L_kk
        diag(Sigma^-1)     = diag(A^-1) - diag(A^-1 U M^-1 U^T A^-1)

    M, trace and log-determinant are computed once, in float64.

    Args:
        diagonal: A as tensors shaped like the parameters; all entries positive.
        factors: The K columns of U, each as tensors shaped like the parameters; none for a diagonal covariance.

    Raises:
        ValueError: If an entry of the diagonal is not positive and finite, or the tensors are sharded.
    """

    def __init__(self, diagonal: Sequence[Tensor], factors: Sequence[Sequence[Tensor]]) -> None:
        super().__init__()
        if any(is_sharded(a) for a in diagonal):
            raise ValueError(
                "covariances with a diagonal and low rank (PTYL) do not support sharded weights (FSDP2): use the prior "
                "L2-SP, or train with DDP"
            )
        if not all(bool(((a > 0) & a.isfinite()).all()) for a in diagonal):
            raise ValueError("the diagonal of a covariance must be positive and finite: add a larger constant to it")
        self.inverse = TensorList([a.reciprocal() for a in diagonal])
        self.factors = nn.ModuleList(TensorList([u.clone() for u in column]) for column in factors)
        self._inverse_row, self._factor_rows = Rows([self.inverse]), Rows(list(self.factors))  # type: ignore[arg-type]
        self._factorise()
        self.register_load_state_dict_post_hook(lambda module, keys: module._factorise())

    def _factorise(self) -> None:
        rank = len(self.factors)
        inner, outer = torch.eye(rank, dtype=torch.float64), torch.zeros(rank, rank, dtype=torch.float64)
        trace = log_det = 0.0
        lists = [
            [chunk for tensor in part.buffers() for chunk in split(tensor)] for part in (self.inverse, *self.factors)
        ]
        for inverse, *columns in zip(*lists, strict=True):
            a = inverse.double()
            trace += float(a.sum())
            log_det -= float(a.log().sum())
            if rank:
                u = torch.stack(columns).double()
                scaled = u * a
                inner += (scaled @ u.T).cpu()  # U^T A^-1 U
                outer += (scaled @ scaled.T).cpu()  # U^T A^-2 U
        self._cholesky = torch.linalg.cholesky(inner)
        self._kept_inverse: Tensor | None = None
        if rank:
            trace -= float(torch.cholesky_solve(outer, self._cholesky).trace())
            log_det += 2 * float(self._cholesky.diagonal().log().sum())
        self._trace_inverse, self._log_det = trace, log_det

    def trace_inverse(self, num_params: int) -> float:
        """Return tr(Sigma^-1), computed once."""
        return self._trace_inverse

    def log_det(self) -> float:
        """Return log det Sigma, computed once."""
        return self._log_det

    def inverse_diagonal(self, weights: Sequence[Tensor], chunks: Chunks) -> OptionalChunks:
        """Return the chunks of diag(Sigma^-1); it costs O(K F), so callers should keep the result."""
        identity = torch.eye(len(self.factors), dtype=torch.float64)
        whitener = torch.linalg.solve_triangular(self._cholesky, identity, upper=False)  # L^-1
        result = [torch.empty_like(chunk) for chunk in chunks]

        def task(k: int, out: Tensor, inverse: Tensor, *columns: Tensor) -> None:
            out.copy_(inverse)
            if columns:
                scaled = torch.stack(columns).double() * inverse.double()
                out.sub_((whitener.to(scaled.device) @ scaled).square().sum(0).to(out.dtype))

        over_chunks(task, result, self.inverse.chunks(weights), *self._columns(weights))
        return result

    def inverse_part(self, index: int, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return a = diag(A^-1) and B^T = L^-1 U^T A^-1 for the weight with this index."""
        inverse, *columns = (list(part.buffers())[index].to(weight).flatten() for part in (self.inverse, *self.factors))
        if not columns:
            return inverse, inverse.new_empty(0, len(inverse))
        scaled = torch.stack(columns) * inverse
        return inverse, torch.linalg.solve_triangular(self._cholesky.to(scaled), scaled, upper=False)

    def precision_times(self, vectors: list[Tensor], weights: Sequence[Tensor], layout: Layout) -> list[Tensor]:
        """Return A^-1 (d - U t)."""
        inverses = [matrix[0] for matrix in self._inverse_row(weights, layout)]
        if not len(self.factors):
            return [a * d for a, d in zip(inverses, vectors, strict=True)]
        factors = self._factor_rows(weights, layout)
        parts = list(zip(inverses, factors, vectors, strict=True))
        projections = [u @ (a * d) for a, u, d in parts]
        projection = sum((p.to(projections[0]) for p in projections[1:]), projections[0])
        t = self._inner_inverse(projection) @ projection
        return [a * torch.addmv(d, u.T, t.to(d), alpha=-1) for a, u, d in parts]

    def _inner_inverse(self, like: Tensor) -> Tensor:
        """Return M^-1 on the device and in the dtype of a tensor."""
        kept = self._kept_inverse
        if kept is None or kept.device != like.device or kept.dtype != like.dtype:
            with torch.inference_mode(False):
                kept = self._kept_inverse = torch.cholesky_inverse(self._cholesky).to(like)
        return kept

    def quadratic(
        self, weights: Sequence[Tensor], chunks: Chunks, mean: OptionalChunks
    ) -> tuple[Tensor, Tensor | None]:
        """Return d^T Sigma^-1 d, and t for `add_gradient`."""

        def task(k: int, w: Tensor, m: Tensor | None, inverse: Tensor, *columns: Tensor) -> Tensor:
            # In float64, because the two terms of the result nearly cancel when d lies in the span of U.
            d = wide(deviation(w, m))
            scaled = wide(inverse, 1).mul_(d) if d.dtype == torch.float64 else inverse * d
            return torch.stack([torch.dot(d, scaled), *(torch.dot(wide(u, 2), scaled) for u in columns)])

        sums = over_chunks(task, chunks, mean, self.inverse.chunks(weights), *self._columns(weights))
        projection = sums[1:]
        t = torch.cholesky_solve(projection[:, None], self._cholesky)[:, 0]
        return sums[0] - projection @ t, t

    def add_gradient(
        self,
        weights: Sequence[Tensor],
        chunks: Chunks,
        mean: OptionalChunks,
        grads: OptionalChunks,
        *,
        weight: float,
        reuse: Tensor | None,
    ) -> None:
        """Add weight * A^-1 (d - U t) to the gradients."""
        t = (self.quadratic(weights, chunks, mean)[1] if reuse is None else reuse).tolist()  # type: ignore[union-attr]

        def task(k: int, w: Tensor, m: Tensor | None, grad: Tensor, inverse: Tensor, *columns: Tensor) -> None:
            residual = buffer(w).copy_(w) if m is None else deviation(w, m)
            for coefficient, u in zip(t, columns, strict=True):
                residual.sub_(u, alpha=coefficient)
            grad.addcmul_(residual, inverse, value=weight)

        over_chunks(task, chunks, mean, grads, self.inverse.chunks(weights), *self._columns(weights))

    def _columns(self, weights: Sequence[Tensor]) -> list[list[Tensor]]:
        return [column.chunks(weights) for column in self.factors]  # type: ignore[operator]
