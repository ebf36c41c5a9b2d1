"""Rounding errors of PTYL in single precision at the size of a real network: KL, learned lambda and gradient.

    python benchmarks/ptyl_accuracy.py [--size 25000000] [--ranks 1,5,20]

The same numbers (drawn in single precision) go through the same code in float32 and in float64. Needs about
8 GB of memory for rank 20.
"""

from __future__ import annotations

import argparse
import gc
from typing import Any

import torch
from torch import nn

import deelbo


class Weights(nn.Module):
    """A network without a forward pass: a backbone of one vector, and a head."""

    def __init__(self, body: torch.Tensor, head: torch.Tensor) -> None:
        super().__init__()
        self.body, self.head = nn.Parameter(body), nn.Parameter(head)


def evaluate(size: int, rank: int, dtype: torch.dtype) -> dict[str, Any]:
    """Return KL, lambda and the gradient of KL/D with respect to the backbone."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int, scale: float = 1.0) -> torch.Tensor:
        return (scale * torch.randn(*shape, generator=generator)).to(dtype)

    mean = normal(size, scale=0.05)
    model = Weights(mean + normal(size, scale=0.003), normal(100, scale=0.1))
    variance, deviations = normal(size, scale=1e-3).square(), normal(rank, size, scale=1e-3)
    posterior = deelbo.IsotropicPosterior(model, init_scale=0.002)
    prior = deelbo.priors.ptyl(model, "head", mean, variance, deviations, rank=rank, diagonal=1e-6)
    objective = deelbo.DataEmphasizedELBO(posterior, prior, num_data=1000)
    with posterior.sample(seed=0):
        (0 * (model.body.sum() + model.head.sum())).backward()  # the likelihood has no part in this
    objective.backward()
    assert model.body.grad is not None
    return {"kl": float(objective.kl()), "lambda": prior.variances["backbone"], "gradient": model.body.grad.clone()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=25_000_000, help="number of weights of the backbone")
    parser.add_argument("--ranks", default="1,5,20", help="numbers K of deviations, separated by commas")
    arguments = parser.parse_args()
    print("| F | K | KL | relative error | lambda | relative error | gradient: relative error of the vector |")
    print("| --- " * 7 + "|")
    for rank in map(int, arguments.ranks.split(",")):
        exact = evaluate(arguments.size, rank, torch.float64)
        gc.collect()
        found = evaluate(arguments.size, rank, torch.float32)
        error = float((found["gradient"].double() - exact["gradient"]).norm() / exact["gradient"].norm())
        relative = {key: abs(found[key] / exact[key] - 1) for key in ("kl", "lambda")}
        print(
            f"| {arguments.size:,} | {rank} | {exact['kl']:.6e} | {relative['kl']:.1e} | {exact['lambda']:.4e} | "
            f"{relative['lambda']:.1e} | {error:.1e} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
