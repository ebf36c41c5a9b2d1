"""A loop with the objective in it, the same loop with the objective attached, and their comparison."""

from contextlib import contextmanager

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


@contextmanager
def watched_gradients():
    """Collect, for each step, the norm of the likelihood's gradient and that of the KL's."""
    norms, add = [], deelbo.DataEmphasizedELBO.add_kl_gradient

    def norm(tensors):
        return float(torch.stack([t.square().sum() for t in tensors]).sum().sqrt())

    def watched(self, loss_scale):
        weights = list(self.posterior.means.values())
        before = [p.grad.clone() for p in weights]
        add(self, loss_scale)
        norms.append((norm(before), norm([p.grad - g for p, g in zip(weights, before, strict=True)])))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deelbo.DataEmphasizedELBO, "add_kl_gradient", watched)
        yield norms


def assert_same_gradients(train):
    """Compare the gradients of training in 1, 2 and 4 micro-batches a step, where draws hardly differ from the means.

    Args:
        train: Takes the number of micro-batches and trains for two steps or more, each on all data, from a scale of
            1e-6.
    """
    found = []
    for micro in (1, 2, 4):
        with watched_gradients() as norms:
            train(micro)
        found.append(norms)
    likelihood, kl = found[0][-1]
    assert min(likelihood, kl) > 1e-5
    assert len(found[0]) > 1
    for norms in found[1:]:
        assert norms == [pytest.approx(pair, rel=2e-3) for pair in found[0]]
