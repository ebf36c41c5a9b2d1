"""Reference fits: exact Gaussian processes with an RBF kernel, by GPyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from deelbo._extras import require
from deelbo.reproduce.rff.demos import GRID, Fit


def _train(model: Any, likelihood: Any, inputs: Any, targets: Any) -> float:
    """Maximise the log marginal likelihood over the hyperparameters by L-BFGS, and return its value."""
    gpytorch = require("gpytorch", "reproduce")
    criterion = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> float:
        optimizer.zero_grad()
        value = -criterion(model(inputs), targets).sum()
        value.backward()
        return value.item()

    optimizer.step(loss)
    value = -loss() * len(inputs)
    model.eval()
    likelihood.eval()
    return value


def _exact(inputs: Any, targets: Any, likelihood: Any, classes: int = 0) -> Any:
    """Return a GPyTorch model with a scaled RBF kernel and a zero mean (a constant mean for classification)."""
    gpytorch = require("gpytorch", "reproduce")
    shape = torch.Size([classes] if classes else [])

    class Exact(gpytorch.models.ExactGP):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__(inputs, targets, likelihood)
            self.mean_module = gpytorch.means.ConstantMean(batch_shape=shape) if classes else gpytorch.means.ZeroMean()
            rbf = gpytorch.kernels.RBFKernel(batch_shape=shape)
            self.covar_module = gpytorch.kernels.ScaleKernel(rbf, batch_shape=shape)

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    return Exact().double()


def regression_fit(x: np.ndarray, y: np.ndarray, title: str = "GP (learned)\nLML") -> Fit:
    """Return the fit of a Gaussian process at the maximum of its marginal likelihood."""
    gpytorch = require("gpytorch", "reproduce")
    inputs, targets = torch.from_numpy(x), torch.from_numpy(y)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    model = _exact(inputs, targets, likelihood)
    value = _train(model, likelihood, inputs, targets)
    with torch.no_grad():
        predicted = likelihood(model(torch.from_numpy(GRID[:, None])))
        learned = {
            "lengthscale": model.covar_module.base_kernel.lengthscale.item(),
            "outputscale": model.covar_module.outputscale.sqrt().item(),
            "noise": likelihood.noise.sqrt().item(),
            "scale": None,
            "objective": value,
        }
        return Fit(title, predicted.mean.numpy(), predicted.stddev.numpy(), learned)


def classification_probabilities(
    x: np.ndarray, labels: np.ndarray, x_new: np.ndarray, samples: int = 512
) -> tuple[np.ndarray, dict[str, float]]:
    """Return class probabilities of a Gaussian process with a Dirichlet likelihood (Milios et al., 2018).

    Args:
        x: Training inputs, [N, 2].
        labels: Class numbers, [N].
        x_new: Inputs to predict, [M, 2].
        samples: Number of draws of the latent function values.

    Returns:
        The probabilities, [M, classes], and the learned hyperparameters and objective by name.
    """
    gpytorch = require("gpytorch", "reproduce")
    inputs = torch.from_numpy(x)
    likelihood = gpytorch.likelihoods.DirichletClassificationLikelihood(
        torch.from_numpy(labels), learn_additional_noise=True, dtype=torch.float64
    ).double()
    classes = likelihood.num_classes
    model = _exact(inputs, likelihood.transformed_targets, likelihood, classes)
    value = _train(model, likelihood, inputs, likelihood.transformed_targets)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        latent = model(torch.from_numpy(x_new))
        # The same draws for every point, so that the probabilities are smooth over the plane.
        draws = torch.randn(samples, classes, 1, generator=generator, dtype=torch.float64)
        probabilities = (latent.mean + latent.stddev * draws).softmax(1).mean(0).T.numpy()
    kernel = model.covar_module
    learned = {
        "lengthscale": kernel.base_kernel.lengthscale.mean().item(),
        "outputscale": kernel.outputscale.sqrt().mean().item(),
        "objective": value,
    }
    return probabilities, learned
