"""Recipes of docs/integrations.md for libraries without a module of their own: `attach` where the optimizer is made."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import deelbo

pytestmark = pytest.mark.slow


def examples():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(24, 4, generator=generator)
    return x, (x[:, 0] > 0).long()


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


def make(net):
    posterior = deelbo.IsotropicPosterior(net, seed=3)
    return deelbo.DataEmphasizedELBO(posterior, deelbo.priors.l2_sp(net, head="2"), 24)


def explicit(steps=4):
    net = network()
    objective = make(net)
    optimizer = torch.optim.SGD(objective.posterior.parameters(), lr=0.1)
    x, y = examples()
    for _ in range(steps):
        optimizer.zero_grad()
        with objective.posterior.sample():
            F.cross_entropy(net(x), y).backward()
        objective.backward()
        torch.nn.utils.clip_grad_norm_(objective.posterior.parameters(), 0.5)
        optimizer.step()
    return net, objective


def assert_same(net, objective):
    other, reference = explicit()
    for one, two in zip(net.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-7)
    assert objective.posterior.scale.item() == pytest.approx(reference.posterior.scale.item(), rel=1e-5)


def test_skorch():
    skorch = pytest.importorskip("skorch")

    class Attach(skorch.callbacks.Callback):
        def on_train_begin(self, net, X=None, y=None, **kwargs):
            self.objective = make(net.module_)
            self.objective.attach(net.optimizer_, max_norm=0.5)

    own = Attach()
    net = skorch.NeuralNetClassifier(
        network(),
        criterion=nn.CrossEntropyLoss,
        lr=0.1,
        max_epochs=4,
        batch_size=24,
        train_split=None,
        verbose=0,
        callbacks=[("attach", own)],
    )
    x, y = examples()
    net.fit(x.numpy(), y.numpy().astype(np.int64))
    attached = dict(net.callbacks_)["attach"]
    assert_same(net.module_, attached.objective)


def test_accelerate():
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    net = network()
    prepared, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.1))
    objective = make(prepared)
    objective.attach(optimizer, max_norm=0.5)
    x, y = examples()
    for _ in range(4):
        optimizer.zero_grad()
        accelerator.backward(F.cross_entropy(prepared(x), y))
        optimizer.step()
    assert_same(net, objective)
