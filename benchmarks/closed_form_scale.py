"""The posterior's scale in closed form against the scale by gradient, and both against the exact optimum.

    python benchmarks/closed_form_scale.py [--steps 10000]

- linear: Bayesian linear regression with 256 random features of 60 inputs and a learned prior variance, where the
  objective has a formula: its maximum is found by L-BFGS in float64.
- digits: a network of 9,000 weights on 100 handwritten digits; only the two ways are compared.

One draw a step, Adam with a cosine schedule; the scale by gradient has the weights' learning rate.
"""

from __future__ import annotations

import argparse
import math

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

import deelbo
from deelbo.priors import GaussianPrior, PriorGroup

NOISE = 0.3


def regression() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 1, generator=generator, dtype=torch.float64)
    a = 2 * torch.randn(1, 256, generator=generator, dtype=torch.float64)
    b = 2 * math.pi * torch.rand(256, generator=generator, dtype=torch.float64)
    y = torch.sin(3 * x) + NOISE * torch.randn(60, 1, generator=generator, dtype=torch.float64)
    return math.sqrt(2 / 256) * torch.cos(x @ a + b), y


def exact(phi: Tensor, y: Tensor, kappa: float) -> tuple[float, float, float]:
    """Return scale, prior variance and objective at the maximum of the objective's formula."""
    size = phi.shape[1]
    mean = torch.zeros(size, 1, dtype=torch.float64, requires_grad=True)
    raw = torch.tensor(-1.0, dtype=torch.float64, requires_grad=True)

    def objective() -> Tensor:
        s = (2 * raw).exp()
        residual = (y - phi @ mean).square().sum() + s * phi.square().sum()
        log_likelihood = -0.5 * residual / NOISE**2 - 0.5 * len(y) * math.log(2 * math.pi * NOISE**2)
        variance = (mean.square().sum() + size * s) / size  # its optimum
        return kappa * log_likelihood - 0.5 * size * (variance / s).log()

    optimizer = torch.optim.LBFGS([mean, raw], max_iter=5000, tolerance_grad=1e-10, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = -objective()
        loss.backward()
        return loss

    for _ in range(5):
        optimizer.step(closure)
    scale = raw.exp().item()
    return scale, float(mean.detach().square().mean()) + scale**2, objective().item()


def trained(
    net: nn.Module, x: Tensor, y: Tensor, kappa: float | None, way: str, steps: int
) -> tuple[float, float, float]:
    """Return scale, first prior variance and objective after training."""

    def nll(reduction: str = "mean") -> Tensor:
        if y.is_floating_point():
            squares = 0.5 * ((y - net(x)) / NOISE).square() + 0.5 * math.log(2 * math.pi * NOISE**2)
            return squares.mean() if reduction == "mean" else squares.sum()
        return F.cross_entropy(net(x), y, reduction=reduction)

    posterior = deelbo.IsotropicPosterior(net, init_scale=0.01, seed=0, scale_update=way)
    prior = GaussianPrior({"all": PriorGroup(net.parameters())})
    objective = deelbo.DataEmphasizedELBO(posterior, prior, len(x), kappa)
    optimizer = torch.optim.Adam(posterior.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        optimizer.zero_grad()
        with posterior.sample():
            nll().backward()
        objective.backward()
        optimizer.step()
        schedule.step()
    prior.update_variances(posterior)
    value = float(objective.estimate(lambda: -nll("sum"), 200))
    return posterior.scale.item(), prior.variances["all"], value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10_000)
    steps = parser.parse_args().steps
    torch.set_num_threads(1)
    print("| problem | kappa | way | scale | prior variance | objective |\n| --- | --- | --- | --- | --- | --- |")
    phi, target = regression()
    for kappa in (1.0, 256 / 60):
        scale, variance, value = exact(phi, target, kappa)
        print(f"| linear | {kappa:.3g} | exact | {scale:.5f} | {variance:.5f} | {value:.2f} |")
        for way in ("closed-form", "gradient"):
            torch.manual_seed(0)
            linear = nn.Linear(256, 1, bias=False, dtype=torch.float64)
            scale, variance, value = trained(linear, phi, target, kappa, way, steps)
            print(f"| linear | {kappa:.3g} | {way} | {scale:.5f} | {variance:.5f} | {value:.2f} |", flush=True)
    images, labels = (torch.tensor(a)[:100] for a in load_digits(return_X_y=True))
    for way in ("closed-form", "gradient"):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(64, 120), nn.Tanh(), nn.Linear(120, 10)).double()
        scale, variance, value = trained(net, images / 16, labels, None, way, steps)
        print(f"| digits | D/N | {way} | {scale:.5f} | {variance:.5f} | {value:.2f} |", flush=True)


if __name__ == "__main__":
    main()
