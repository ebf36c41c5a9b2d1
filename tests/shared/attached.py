"""A loop with the objective in it, the same loop with the objective attached, and their comparison."""

import pytest
import torch
import torch.nn.functional as F

import deelbo
from shared.cases import Net, batch


def make(
    net=None,
    optimizer_class=torch.optim.SGD,
    init_scale=0.05,
    head="head",
    num_data=12,
    scale_update="closed-form",
    **options,
):
    """Return a network, its objective and an optimizer over the network's own parameters."""
    torch.manual_seed(0)
    net = Net() if net is None else net
    posterior = deelbo.IsotropicPosterior(net, init_scale=init_scale, seed=7, scale_update=scale_update)
    objective = deelbo.DataEmphasizedELBO(posterior, deelbo.priors.l2_sp(net, head=head), num_data)
    return net, objective, optimizer_class(net.parameters(), **{"lr": 0.1, **options})


def explicit(steps=3, **options):
    net, objective, optimizer = make(**options)
    optimizer.param_groups[0]["params"].extend(objective.posterior.scale_parameters())
    x, y = batch()
    for _ in range(steps):
        optimizer.zero_grad()
        with objective.posterior.sample():
            F.cross_entropy(net(x), y).backward()
        objective.backward()
        optimizer.step()
    return net, objective


def attached(steps=3, **options):
    net, objective, optimizer = make(**options)
    objective.attach(optimizer)
    x, y = batch()
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
    return net, objective


def assert_same_training(one, other, exact=True):
    (net, objective), (other_net, other_objective) = one, other
    compare = torch.equal if exact else torch.allclose
    assert all(compare(p, r) for p, r in zip(net.parameters(), other_net.parameters(), strict=True))
    assert compare(objective.posterior.scale, other_objective.posterior.scale)
    assert objective.prior.variances == pytest.approx(other_objective.prior.variances, rel=0 if exact else 1e-6)
