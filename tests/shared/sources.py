"""Posteriors of source tasks, with random numbers in them, and their covariance as a dense matrix."""

import torch

from deelbo.priors import SourcePosterior
from shared.cases import Net


def source(net=None, rank=6, seed=0, dtype=torch.float64):
    net = net or Net()
    generator = torch.Generator().manual_seed(seed)
    names = {n: p.shape for n, p in net.named_parameters() if not n.startswith("head")}

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=dtype)

    return SourcePosterior(
        {n: normal(*s) for n, s in names.items()},
        {n: normal(*s).square() for n, s in names.items()},
        {n: normal(rank, *s) for n, s in names.items()},
        notes={"made": "here"},
    )


def flat(values, rows=False):
    return torch.cat([v.flatten(1) if rows else v.flatten() for v in values.values()], -1)


def covariance(posterior, rank, diagonal):
    rows = flat(posterior.deviations, rows=True)[:rank]
    dense = 0.5 * (flat(posterior.variance).diag() + rows.T @ rows / max(rank - 1, 1))
    return dense + diagonal * torch.eye(rows.shape[1], dtype=dense.dtype)
