"""AdamW against its formula."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from deelbo.optimizers import OPTIMIZERS


@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_steps_are_the_formula(decay):
    weight = nn.Parameter(torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64))
    optimizer = OPTIMIZERS["adamw"]([weight], 0.1, SimpleNamespace(weight_decay=decay))
    expected = weight.detach().clone()
    first, second = torch.zeros(2, 3, dtype=torch.float64)
    for step in range(1, 5):
        gradient = torch.tensor([0.3, -1.0, 2.0], dtype=torch.float64) * step
        weight.grad = gradient.clone()
        optimizer.step()
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        change = (first / (1 - 0.9**step)) / ((second / (1 - 0.999**step)).sqrt() + 1e-8)
        expected = (1 - 0.1 * decay) * expected - 0.1 * change
    torch.testing.assert_close(weight.detach(), expected, rtol=1e-12, atol=0)


def test_it_keeps_as_many_numbers_as_it_says():
    weight = nn.Parameter(torch.ones(3))
    optimizer = OPTIMIZERS["adamw"]([weight], 0.1, SimpleNamespace(weight_decay=0.0))
    weight.grad = torch.ones(3)
    optimizer.step()
    kept = [value for value in optimizer.state[weight].values() if value.shape == weight.shape]
    assert len(kept) == OPTIMIZERS["adamw"].buffers == 2
