"""A small network for two numbers, and a run of it on targets around a thousand."""

from collections import OrderedDict

import torch
from torch import nn
from torch.utils.data import TensorDataset

import deelbo
from shared.digits import FAST


def regressor():
    torch.manual_seed(0)
    return nn.Sequential(OrderedDict([("body", nn.Linear(3, 30)), ("relu", nn.ReLU()), ("fc", nn.Linear(30, 2))]))


def regression_run():
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    y = 1000 + 50 * x.sum(1, keepdim=True) * torch.tensor([1.0, -2.0])
    return x, deelbo.finetune(regressor(), TensorDataset(x, y), "fc", **FAST)
