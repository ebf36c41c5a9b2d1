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
from deelbo._weight_passes import TensorList, buffer, over_chunks, scalar_dtype, split, sum_of_squares, wide

Chunks = Sequence[Tensor]
OptionalChunks = Sequence[Tensor | None]
Quadratic = tuple[Tensor, Tensor | None]


class Covariance(nn.Module, ABC):
    """Covariance matrix Sigma over the F weights of a prior group.

    In the methods, `weights` are the parameters of the group and `chunks` their flat chunks, `mean` are the chunks of
    the prior mean (None for zeros), d = weights - mean, and `reuse` is the second result of `quadratic`. On the device
    path d comes in vectors, and `pull` serves for both the quadratic form and its gradient.
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
    def pull(self, vectors: list[Tensor], weights: Sequence[Tensor], layout: Layout) -> tuple[Tensor, list[Tensor]]:
        """Return d^T Sigma^-1 d and Sigma^-1 d, where d has the given vectors, which may be overwritten."""

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

    def pull(self, vectors: list[Tensor], weights: Sequence[Tensor], layout: Layout) -> tuple[Tensor, list[Tensor]]:
        """Return |d|^2 and d itself."""
        return squared_norm(vectors), vectors

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

    With S = A^-1/2, W = S U, M = I_K + W^T W = L L^T (Cholesky) and t = M^-1 W^T S d, Woodbury and the determinant
    lemma give

        Sigma^-1 d         = S (S d - W t)
        d^T Sigma^-1 d     = |S d|^2 - t^T W^T S d  =  |S d - W t|^2 + |t|^2
        tr(Sigma^-1)       = tr(S^2) - tr(M^-1 W^T S^2 W)
        log det(Sigma)     = -2 log det(S) + 2 sum_k log L_kk
        diag(Sigma^-1)     = diag(S^2) - diag(S W M^-1 W^T S)

    S and W are kept, so that a pass over the weights needs no division. M, trace and log-determinant are computed once,
    in float64.

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
        roots = [a.rsqrt() for a in diagonal]
        self.roots = TensorList(roots)
        self.factors = nn.ModuleList(
            TensorList([u * s for u, s in zip(column, roots, strict=True)]) for column in factors
        )
        self._root_row, self._factor_rows = Rows([self.roots]), Rows(list(self.factors))  # type: ignore[arg-type]
        self._factorise()
        self.register_load_state_dict_post_hook(lambda module, keys: module._factorise())

    def _factorise(self) -> None:
        rank = len(self.factors)
        inner, outer = torch.eye(rank, dtype=torch.float64), torch.zeros(rank, rank, dtype=torch.float64)
        trace = log_det = 0.0
        lists = [
            [chunk for tensor in part.buffers() for chunk in split(tensor)] for part in (self.roots, *self.factors)
        ]
        for root, *columns in zip(*lists, strict=True):
            s = root.double()
            trace += float(s.square().sum())
            log_det -= 2 * float(s.log().sum())
            if rank:
                w = torch.stack(columns).double()
                scaled = w * s
                inner += (w @ w.T).cpu()  # W^T W
                outer += (scaled @ scaled.T).cpu()  # W^T S^2 W
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

        def task(k: int, out: Tensor, root: Tensor, *columns: Tensor) -> None:
            squares = root.double().square()
            if columns:
                white = whitener.to(root.device) @ torch.stack(columns).double()  # L^-1 W^T
                squares *= 1 - white.square().sum(0)
            out.copy_(squares)

        over_chunks(task, result, self.roots.chunks(weights), *self._columns(weights))
        return result

    def inverse_part(self, index: int, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return a = diag(S^2) and B^T = L^-1 W^T S for the weight with this index."""
        root, *columns = (list(part.buffers())[index].to(weight).flatten() for part in (self.roots, *self.factors))
        if not columns:
            return root.square(), root.new_empty(0, len(root))
        scaled = torch.stack(columns) * root
        return root.square(), torch.linalg.solve_triangular(self._cholesky.to(scaled), scaled, upper=False)

    def pull(self, vectors: list[Tensor], weights: Sequence[Tensor], layout: Layout) -> tuple[Tensor, list[Tensor]]:
        """Return |S d - W t|^2 + |t|^2 and S (S d - W t).

        The sum of squares is smallest at the right t, so a small error in t hardly matters; the difference
        |S d|^2 - t^T W^T S d would need float64. One round of iterative refinement, with W^T (S d - W t) = t, removes
        the error of sums over all weights in float32.
        """
        roots = [matrix[0] for matrix in self._root_row(weights, layout)]
        whitened = [d.mul_(s) for d, s in zip(vectors, roots, strict=True)]
        rank = len(self.factors)
        if not rank:
            return squared_norm(whitened), [d.mul_(s) for d, s in zip(whitened, roots, strict=True)]
        factors = self._factor_rows(weights, layout)
        first, *others = whitened
        both = first.new_empty(len(first) + rank)  # the first vector of S d - W t, and t, for one norm of both
        residuals, t = [both[:-rank], *(torch.empty_like(d) for d in others)], both[-rank:]
        inner = self._inner_inverse(t)
        torch.mv(inner, _projection(factors, whitened), out=t)
        _subtract(whitened, factors, t, residuals)
        t.addmv_(inner, _projection(factors, residuals, minus=t))
        _subtract(whitened, factors, t, residuals)
        quadratic = squared_norm([both, *residuals[1:]])
        return quadratic, [r.mul_(s) for r, s in zip(residuals, roots, strict=True)]

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

        def task(k: int, w: Tensor, m: Tensor | None, root: Tensor, *columns: Tensor) -> Tensor:
            # In float64, because the two terms of the result nearly cancel when d lies in the span of U.
            whitened = wide(deviation(w, m)).mul_(wide(root, 1))
            return torch.stack([torch.dot(whitened, whitened), *(torch.dot(wide(u, 2), whitened) for u in columns)])

        sums = over_chunks(task, chunks, mean, self.roots.chunks(weights), *self._columns(weights))
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
        """Add weight * S (S d - W t) to the gradients."""
        t = (self.quadratic(weights, chunks, mean)[1] if reuse is None else reuse).tolist()  # type: ignore[union-attr]

        def task(k: int, w: Tensor, m: Tensor | None, grad: Tensor, root: Tensor, *columns: Tensor) -> None:
            residual = torch.mul(deviation(w, m), root, out=buffer(w))
            for coefficient, u in zip(t, columns, strict=True):
                residual.sub_(u, alpha=coefficient)
            grad.addcmul_(residual, root, value=weight)

        over_chunks(task, chunks, mean, grads, self.roots.chunks(weights), *self._columns(weights))

    def _columns(self, weights: Sequence[Tensor]) -> list[list[Tensor]]:
        return [column.chunks(weights) for column in self.factors]  # type: ignore[operator]


def squared_norm(vectors: Sequence[Tensor]) -> Tensor:
    """Return the sum of squares of all vectors, computed in float64 without a copy of them in it."""
    first, *others = (torch.linalg.vector_norm(v, dtype=scalar_dtype(v.device)).square_() for v in vectors)
    return sum((other.to(first) for other in others), first)


def _projection(factors: Sequence[Tensor], vectors: Sequence[Tensor], minus: Tensor | None = None) -> Tensor:
    """Return W^T r, or W^T r - minus, where r has the given vectors."""
    w, r = factors[0], vectors[0]
    first = w @ r if minus is None else torch.addmv(minus, w, r, beta=-1)
    return sum(((w @ r).to(first) for w, r in zip(factors[1:], vectors[1:], strict=True)), first)


def _subtract(vectors: Sequence[Tensor], factors: Sequence[Tensor], t: Tensor, out: Sequence[Tensor]) -> None:
    """Write d - W t to the vectors `out`, where d has the given vectors."""
    for d, w, result in zip(vectors, factors, out, strict=True):
        torch.addmv(d, w.T, t.to(d), alpha=-1, out=result)
