"""A small network in bfloat16, its objective and a loop."""

import torch
import torch.nn.functional as F

import deelbo
from shared.cases import Net, batch


def make(scale_update="closed-form", init_scale=1e-3, net=None, **options):
    """Return a network in bfloat16, its objective and an optimizer of the means."""
    torch.manual_seed(0)
    net = Net(dtype=torch.float32).bfloat16() if net is None else net
    posterior = deelbo.IsotropicPosterior(net, init_scale=init_scale, seed=7, scale_update=scale_update)
    objective = deelbo.DataEmphasizedELBO(posterior, deelbo.priors.l2_sp(net, head="head"), 12)
    return net, objective, torch.optim.SGD(posterior.parameters(), **{"lr": 0.1, "momentum": 0.9, **options})


def train(net, objective, optimizer, steps=3, zero_grad=None):
    x, y = batch(dtype=torch.bfloat16)
    for _ in range(steps):
        (zero_grad or optimizer.zero_grad)()
        with objective.posterior.sample():
            F.cross_entropy(net(x).float(), y).backward()
        objective.backward()
        optimizer.step()


def rounded_means(objective):
    return {name: mean.detach().bfloat16() for name, mean in objective.posterior.means.items()}
