"""A small network on a few digits, fine-tuned in a moment."""

import functools

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

import deelbo


@functools.cache  # reading them takes longer than training
def _all():
    images, labels = (torch.tensor(a) for a in load_digits(return_X_y=True))
    return images.float() / 16, labels


def digits(number=100):
    images, labels = (a.clone() for a in _all())
    return TensorDataset(images[:number], labels[:number]), TensorDataset(images[900:], labels[900:])


def network(norm=True):
    torch.manual_seed(0)
    layer = nn.BatchNorm1d(64) if norm else nn.Identity()
    return nn.Sequential(nn.Linear(64, 64), layer, nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 10))


FAST = {"steps": 60, "batch_size": 32, "learning_rates": (0.1, 0.01), "samples": 2, "device": "cpu"}


def quick(norm=True, **options):
    return deelbo.finetune(network(norm), digits()[0], "4", **{**FAST, **options})
