"""A candidate of the search for a learning rate, on a few digits."""

import accelerate
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from deelbo.likelihoods import Categorical
from deelbo.training.loop import Candidate
from deelbo.training.method import METHODS, MethodInputs
from deelbo.training.pipeline import StepBatches
from deelbo.training.settings import Settings


def candidate(steps=40, rate=0.1, init_scale=0.05, **options):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10))
    images, labels = (torch.tensor(a)[:96] for a in load_digits(return_X_y=True))
    data = TensorDataset(images.float() / 16, labels)
    settings = Settings(steps=steps, batch_size=32, samples=3, init_scale=init_scale, **options)
    likelihood, prior = Categorical(), settings.prior_recipe().make(network, "3")
    method = METHODS[settings.method].make(MethodInputs(network, prior, likelihood, len(data), 10, settings))
    accelerate.state.AcceleratorState._reset_state()  # an earlier test may have used another precision
    accelerator = accelerate.Accelerator(cpu=True)
    return Candidate(
        network,
        method=method,
        likelihood=likelihood,
        batches=StepBatches(data, settings, accelerator),
        plain_set=data,
        learning_rate=rate,
        settings=settings,
        accelerator=accelerator,
    )
