"""Covariances of a diagonal plus a low rank, in our form and as dense matrices."""

import torch
from hypothesis import strategies as st

from deelbo.priors import DiagonalPlusLowRank
from deelbo.priors.gaussian import shaped_like

shapes = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=3)


def low_rank(net, rank, seed=0, spread=1.0):
    """Return a covariance in our form and as a dense matrix."""
    generator = torch.Generator().manual_seed(seed)
    weights = list(net.parameters())
    size = sum(w.numel() for w in weights)
    diagonal = torch.rand(size, dtype=torch.float64, generator=generator) + 0.05
    factors = spread * torch.randn(rank, size, dtype=torch.float64, generator=generator)
    covariance = DiagonalPlusLowRank(
        shaped_like(weights, diagonal, "a"), [shaped_like(weights, u, "u") for u in factors]
    )
    return covariance, diagonal.diag() + factors.T @ factors
