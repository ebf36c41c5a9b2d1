"""Small networks and data that the tests share, and slow, obvious formulas to compare with."""

import torch
from torch import nn


class Net(nn.Module):
    """A backbone and a head, in double precision so that formulas can be compared to 1e-8."""

    def __init__(self, inputs=5, hidden=7, classes=3, dtype=torch.float64):
        super().__init__()
        self.body = nn.Linear(inputs, hidden, dtype=dtype)
        self.norm = nn.LayerNorm(hidden, dtype=dtype)
        self.head = nn.Linear(hidden, classes, dtype=dtype)

    def forward(self, x):
        return self.head(torch.tanh(self.norm(self.body(x))))


class Bare(nn.Module):
    """Nothing but parameters of given shapes."""

    def __init__(self, *shapes, dtype=torch.float64, seed=0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        for i, shape in enumerate(shapes):
            value = torch.randn(shape, dtype=dtype, generator=generator)
            self.register_parameter(f"p{i}", nn.Parameter(value))

    def vector(self):
        return torch.cat([p.detach().flatten() for p in self.parameters()])


def batch(n=12, inputs=5, classes=3, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, inputs, dtype=dtype, generator=generator)
    return x, torch.randint(classes, (n,), generator=generator)


def copies(module):
    return {name: p.detach().clone() for name, p in module.named_parameters()}


def same(module, state):
    """Tell whether every parameter is the stored one, bit for bit."""
    return all(torch.equal(p.detach(), state[name]) for name, p in module.named_parameters())


def flat_grad(parameters):
    return torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in parameters])


def backbone_vector(net):
    return torch.cat([p.detach().flatten() for name, p in net.named_parameters() if not name.startswith("head")])
