"""SGD with Nesterov momentum against its formula."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from deelbo.optimizers import OPTIMIZERS


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_steps_are_the_formula(momentum):
    weight = nn.Parameter(torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64))
    optimizer = OPTIMIZERS["sgd"]([weight], 0.1, SimpleNamespace(momentum=momentum))
    expected, velocity = weight.detach().clone(), torch.zeros(3, dtype=torch.float64)
    for step in range(4):
        gradient = torch.tensor([0.3, -1.0, 2.0], dtype=torch.float64) * (step + 1)
        weight.grad = gradient.clone()
        optimizer.step()
        velocity = momentum * velocity + gradient
        expected = expected - 0.1 * (gradient + momentum * velocity)  # and no weight decay
    torch.testing.assert_close(weight.detach(), expected, rtol=1e-14, atol=0)


def test_it_keeps_as_many_numbers_as_it_says():
    weight = nn.Parameter(torch.ones(3))
    optimizer = OPTIMIZERS["sgd"]([weight], 0.1, SimpleNamespace(momentum=0.9))
    weight.grad = torch.ones(3)
    optimizer.step()
    kept = [value for value in optimizer.state[weight].values() if value.shape == weight.shape]
    assert len(kept) == OPTIMIZERS["sgd"].buffers == 1
