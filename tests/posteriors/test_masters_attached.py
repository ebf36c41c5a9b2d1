"""Attached loops of networks in bfloat16: the optimizer gets masters in the place of the weights."""

import copy

import pytest
import torch
import torch.nn.functional as F

from shared.bfloat16 import make, rounded_means, train
from shared.cases import batch, copies, same


def attached(of="network", **options):
    """Train by an attached optimizer of the network's own weights, or of the posterior's."""
    net, objective, optimizer = make(**options)
    if of == "network":
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    return net, objective, optimizer, objective.attach(optimizer)


def run(net, optimizer, steps=3, zero_grad=None):
    x, y = batch(dtype=torch.bfloat16)
    for _ in range(steps):
        (zero_grad or optimizer.zero_grad)()
        F.cross_entropy(net(x).float(), y).backward()
        optimizer.step()


@pytest.mark.parametrize("of", ["network", "posterior"])
def test_attached_training_is_the_same(of):
    one = make()
    train(*one)
    net, objective, optimizer, handle = attached(of)
    own = [id(p) for p in (net.parameters() if of == "network" else objective.posterior.means.values())]
    run(net, optimizer, zero_grad=net.zero_grad)
    assert same(net, copies(one[0]))
    assert objective.summary() == one[1].summary()
    handle.remove()
    scale = id(objective.posterior.raw_scale)
    assert [id(p) for p in optimizer.param_groups[0]["params"] if id(p) != scale] == own
    assert {state["momentum_buffer"].dtype for p, state in optimizer.state.items() if id(p) in own} == {
        torch.bfloat16 if of == "network" else torch.float32
    }


def test_an_evaluation_between_an_attached_forward_and_its_backward():
    net, objective, _, _ = attached(init_scale=0.1)
    x, y = batch(dtype=torch.bfloat16)
    net.eval()
    at_mean = net(x)
    net.train()
    loss = F.cross_entropy(net(x).float(), y)
    net.eval()
    assert torch.equal(net(x), at_mean)
    net.train()
    loss.backward()
    first = {name: mean.grad.clone() for name, mean in objective.posterior.means.items()}
    assert all(grad.any() for grad in first.values())
    assert same(net, rounded_means(objective))


def test_a_second_backward_pass_uses_the_same_draw():
    net, objective, _, _ = attached(init_scale=0.1)
    x, y = batch(dtype=torch.bfloat16)
    loss = F.cross_entropy(net(x).float(), y)
    loss.backward(retain_graph=True)
    once = {name: mean.grad.clone() for name, mean in objective.posterior.means.items()}
    product = objective.posterior.raw_scale.grad.clone()
    loss.backward()
    assert all(torch.equal(mean.grad, 2 * once[name]) for name, mean in objective.posterior.means.items())
    assert torch.allclose(objective.posterior.raw_scale.grad, 2 * product)


def test_an_attached_run_is_resumed_bit_for_bit():
    whole = attached()
    run(whole[0], whole[2], steps=5)
    first = attached()
    run(first[0], first[2], steps=2)
    states = copy.deepcopy(first[0].state_dict()), copy.deepcopy(first[2].state_dict())
    second = attached()
    second[0].load_state_dict(states[0])
    second[2].load_state_dict(states[1])
    run(second[0], second[2], steps=3)
    assert same(second[0], copies(whole[0]))
    means = whole[1].posterior.means
    assert all(torch.equal(mean, means[name]) for name, mean in second[1].posterior.means.items())
