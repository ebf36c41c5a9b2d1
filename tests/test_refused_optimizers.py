"""Optimizers that cannot be attached are refused by name, with what to do instead."""

import pytest
import timm.optim
import torch
import torch.nn.functional as F
from torch.distributed.optim import _apply_optimizer_in_backward

from shared.attached import make
from shared.cases import Net, batch


class AdaLomo(torch.optim.SGD):
    """An optimizer with the name of one that updates during the backward pass."""


class Plain:
    """An optimizer of another library, with parameters of its own."""

    def __init__(self, parameters):
        self.parameters = list(parameters)

    def step(self):
        """Change nothing."""


class Stage3:
    """An optimizer from where DeepSpeed has those that it wraps around plain ones."""

    __module__ = "deepspeed.runtime.zero.stage3"

    def __init__(self, optimizer):
        self.optimizer = optimizer


class Wrapper(torch.optim.SGD):
    """An optimizer as accelerate wraps that of DeepSpeed."""

    def __init__(self, parameters):
        super().__init__(parameters, lr=0.1)
        self.optimizer = Stage3(torch.optim.SGD(self.param_groups[0]["params"], lr=0.1))


@pytest.mark.parametrize(
    ("make_optimizer", "message"),
    [
        (torch.optim.LBFGS, "LBFGS calls its closure several times a step: attach an optimizer without"),
        (AdaLomo, "AdaLomo updates the weights during the backward pass.*torch.optim.AdamW"),
        (Plain, "Plain of .* is no torch.optim.Optimizer.*OptimWrapper"),
        (Wrapper, "Stage3 of DeepSpeed keeps weights.*DDP instead"),
        (
            lambda p: timm.optim.Lookahead(torch.optim.SGD(p, lr=0.1)),
            r"Lookahead.step\(\) calls no hooks.*_base_optimizer",
        ),
        (lambda p: torch.optim.Adam(p, capturable=True), "Adam has capturable=True.*capturable=False"),
    ],
)
def test_refused_by_name(make_optimizer, message):
    net, objective, _ = make()
    optimizer = make_optimizer(net.parameters())
    with pytest.raises(ValueError, match=message):
        objective.attach(optimizer)
    assert objective.posterior.attachment is None
    objective.attach(torch.optim.SGD(net.parameters(), lr=0.1))  # nothing is left of the attempt


def test_the_optimizer_inside_lookahead_can_be_attached():
    net, objective, inner = make()
    objective.attach(inner)
    outer = timm.optim.Lookahead(inner)
    x, y = batch()
    for _ in range(3):
        outer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        outer.step()
    assert objective.prior.variances["backbone"] != 1.0


def test_optimizer_over_a_part_of_the_weights():
    net, objective, _ = make()
    with pytest.raises(ValueError, match=r'lacks 4 weights of the posterior, such as "body.weight"'):
        objective.attach(torch.optim.SGD(net.head.parameters(), lr=0.1))


def test_optimizers_that_pytorch_applies_in_the_backward_pass():
    net, objective, optimizer = make()
    _apply_optimizer_in_backward(torch.optim.SGD, net.parameters(), {"lr": 0.1})
    with pytest.raises(ValueError, match="the optimizer updates the weights during the backward pass"):
        objective.attach(optimizer)


def test_updates_by_hooks_of_the_backward_pass():
    """They would be lost with the draw, and no name tells of them."""
    net, objective, optimizer = make()
    objective.attach(optimizer)
    x, y = batch()

    @torch.no_grad()
    def update(parameter):
        parameter.sub_(0.1 * parameter.grad)
        parameter.grad = None

    for parameter in net.parameters():
        parameter.register_post_accumulate_grad_hook(update)
    before = [p.clone() for p in net.parameters()]
    with pytest.raises(RuntimeError, match="changed between the forward pass and the end of the backward pass"):
        F.cross_entropy(net(x), y).backward()
    assert all(torch.equal(p, b) for p, b in zip(net.parameters(), before, strict=True))


def test_steps_that_pass_the_hook_by():
    net, objective, optimizer = make()
    objective.attach(optimizer)
    other = torch.optim.SGD(net.parameters(), lr=0.1)  # the one that the loop steps
    x, y = batch()

    def train():
        for _ in range(3):
            other.zero_grad()
            F.cross_entropy(net(x), y).backward()
            other.step()

    with pytest.raises(RuntimeError, match=r"without a call of SGD.step\(\) that hooks could see.*attach the"):
        train()


def test_weights_that_are_moved_and_moved_back_before_a_step():
    """As SAM does: two gradients for each step, the second at weights that are moved for it."""
    net, objective, optimizer = make()
    objective.attach(optimizer)
    x, y = batch()
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        moves = [0.01 * p.grad for p in net.parameters()]
        optimizer.zero_grad()
        with torch.no_grad():
            torch._foreach_add_(list(net.parameters()), moves)
        F.cross_entropy(net(x), y).backward()
        with torch.no_grad():
            torch._foreach_sub_(list(net.parameters()), moves)
        optimizer.step()
    assert all(bool(p.isfinite().all()) for p in net.parameters())


def test_weights_that_are_loaded_before_the_first_step():
    net, objective, optimizer = make()
    objective.attach(optimizer)
    x, y = batch()
    for _ in range(4):  # attempts of which none comes to its step
        F.cross_entropy(net(x), y).backward()
        net.load_state_dict(Net().state_dict())
    optimizer.step()
