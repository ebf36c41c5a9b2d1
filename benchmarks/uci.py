"""RFF regression against an exact Gaussian process, a sparse one and a cross-validated kernel approximation.

    python benchmarks/uci.py FOLDER [--sets yacht,energy,...] [--splits 3] [--methods exact,svgp,...] [--out uci.jsonl]

FOLDER has SET/data.txt, SET/index_features.txt, SET/index_target.txt and SET/index_{train,test}_K.txt. Each fit appends
a line to the file --out and is not repeated; the table shows all lines. Inputs and targets are standardised by the
training rows, so predicting the mean has an RMSE of 1. Every kernel is an RBF with one lengthscale unless the name says
ARD (one lengthscale for each input). Needs `pip install -e ".[reproduce]"`.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpytorch
import numpy as np
import torch
from scipy.optimize import minimize
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline

from deelbo.rff import RFFRegressor

Array = np.ndarray
Split = tuple[Array, Array, Array, Array]
SETS = ("yacht", "energy", "concrete", "wine-quality-red", "kin8nm", "power-plant")


def load(folder: Path, split: int) -> Split:
    """Return standardised training inputs and targets, and test inputs and targets."""
    table = np.loadtxt(folder / "data.txt")
    columns = np.loadtxt(folder / "index_features.txt").astype(int)
    X, y = table[:, columns], table[:, int(np.loadtxt(folder / "index_target.txt"))]
    train, test = (np.loadtxt(folder / f"index_{part}_{split}.txt").astype(int) for part in ("train", "test"))
    spread = X[train].std(0)
    X = (X - X[train].mean(0)) / np.where(spread > 0, spread, 1)
    y = (y - y[train].mean()) / y[train].std()
    return X[train], y[train], X[test], y[test]


class _ExactGP(gpytorch.models.ExactGP):
    def __init__(self, X: Any, y: Any, likelihood: Any, ard: bool) -> None:
        super().__init__(X, y, likelihood)
        self.mean_module = gpytorch.means.ZeroMean()
        kernel = gpytorch.kernels.RBFKernel(ard_num_dims=X.shape[1] if ard else None)
        self.covar_module = gpytorch.kernels.ScaleKernel(kernel)
        kernel.lengthscale = math.sqrt(X.shape[1]) / 2

    def forward(self, x: Any) -> Any:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def exact(X: Array, y: Array, X_test: Array, ard: bool = False, few: bool = False) -> tuple[Array, Array]:
    """Return predictive mean and standard deviation of an exact GP: GPyTorch, Cholesky factors in float64.

    The hyperparameters come from the same L-BFGS as ours, from one start. With `few` they are learned from 2,000 of the
    rows, and only the posterior uses all rows.
    """
    if few:
        rows = np.random.default_rng(0).permutation(len(X))[:2000]
        _, start = _exact(X[rows], y[rows], X_test, ard, None)
        return _exact(X, y, X_test, ard, start)[0]
    return _exact(X, y, X_test, ard, None)[0]


def _exact(X: Array, y: Array, X_test: Array, ard: bool, start: Array | None) -> tuple[tuple[Array, Array], Array]:
    inputs, targets, new = (torch.from_numpy(part) for part in (X, y, X_test))
    floor = gpytorch.constraints.GreaterThan(1e-6)
    likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=floor).double()
    model = _ExactGP(inputs, targets, likelihood, ard).double()
    likelihood.noise = 0.01
    criterion = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    parameters = list(model.parameters())

    def negative(vector: Array) -> tuple[float, Array]:
        torch.nn.utils.vector_to_parameters(torch.from_numpy(vector), parameters)
        model.zero_grad()
        try:
            loss = -criterion(model(inputs), targets)
            loss.backward()
        except Exception as error:  # linear_operator's own kind for a kernel that is not positive definite
            if type(error).__name__ not in ("NotPSDError", "NanError"):
                raise
            return 1e100, np.zeros_like(vector)
        return loss.item(), torch.cat([p.grad.flatten() for p in parameters if p.grad is not None]).numpy()

    first = torch.nn.utils.parameters_to_vector(parameters).detach().numpy() if start is None else start
    with gpytorch.settings.max_cholesky_size(10**6), gpytorch.settings.fast_computations(False, False, False):
        options = {"maxiter": 100, "ftol": 1e-8, "gtol": 1e-5}
        if start is None:
            first = minimize(negative, first, jac=True, method="L-BFGS-B", options=options).x
        torch.nn.utils.vector_to_parameters(torch.from_numpy(first), parameters)
        model.eval()
        likelihood.eval()
        with torch.no_grad():
            predicted = likelihood(model(new))
            return (predicted.mean.numpy(), predicted.stddev.numpy()), first


class _SparseGP(gpytorch.models.ApproximateGP):
    def __init__(self, points: Any) -> None:
        distribution = gpytorch.variational.CholeskyVariationalDistribution(len(points))
        strategy = gpytorch.variational.VariationalStrategy(self, points, distribution, learn_inducing_locations=True)
        super().__init__(strategy)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
        self.covar_module.base_kernel.lengthscale = math.sqrt(points.shape[1]) / 2

    def forward(self, x: Any) -> Any:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def svgp(X: Array, y: Array, X_test: Array, steps: int = 1000) -> tuple[Array, Array]:
    """Return mean and standard deviation of GPyTorch's stochastic variational GP.

    It has 256 inducing points and is trained on batches of 1,024 by Adam at 0.02 with a cosine schedule to zero.
    """
    torch.default_generator.manual_seed(0)
    inputs, targets, new = (torch.from_numpy(part).float() for part in (X, y, X_test))
    model = _SparseGP(inputs[torch.randperm(len(inputs))[:256]].clone())
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    likelihood.noise = 0.05
    criterion = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(inputs))
    optimizer = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.02)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        rows = torch.randperm(len(inputs))[:1024]
        optimizer.zero_grad()
        (-criterion(model(inputs[rows]), targets[rows])).backward()
        optimizer.step()
        schedule.step()
    model.eval()
    likelihood.eval()
    with torch.no_grad():
        predicted = likelihood(model(new))
        return predicted.mean.double().numpy(), predicted.stddev.double().numpy()


def nystroem(X: Array, y: Array, X_test: Array) -> tuple[Array, Array]:
    """Return mean and standard deviation of ridge regression on 1,024 Nystroem components.

    Gamma is chosen by 5-fold cross-validation, the ridge by leave-one-out; the noise comes from the residuals.
    """
    model = make_pipeline(Nystroem(n_components=min(1024, int(0.8 * len(X))), random_state=0),
                          RidgeCV(alphas=np.logspace(-6, 2, 9)))  # fmt: skip
    gammas = {"nystroem__gamma": np.logspace(-3, 0.5, 8) / X.shape[1] * 4}
    search = GridSearchCV(model, gammas, cv=5, scoring="neg_mean_squared_error").fit(X, y)
    residuals = y - cross_val_predict(search.best_estimator_, X, y, cv=5)
    return search.predict(X_test), np.full(len(X_test), residuals.std())


def ours(**settings: Any) -> Callable[..., tuple[Array, Array]]:
    """Return a function that fits `RFFRegressor` with these settings and returns mean and standard deviation."""

    def fit(X: Array, y: Array, X_test: Array) -> tuple[Array, Array]:
        return RFFRegressor(random_state=0, **settings).fit(X, y).predict(X_test, return_std=True)

    return fit


METHODS: dict[str, tuple[str, Callable[..., tuple[Array, Array]]]] = {
    "exact": ("exact GP (GPyTorch)", exact),
    "exact-few": ("exact GP, hyperparameters of 2,000 rows", lambda X, y, X_test: exact(X, y, X_test, few=True)),
    "ours": ("**ours: RFFRegressor()**, LML", ours()),
    "de-elbo": ("ours, DE-ELBO", ours(objective="de-elbo")),
    "elbo": ("ours, ELBO", ours(objective="elbo")),
    "float32": ("ours, LML, float32", ours(dtype="float32")),
    "ours-ard": ("ours, LML, ARD", ours(ard=True)),
    "svgp": ("SVGP (GPyTorch)", svgp),
    "nystroem": ("Nystroem + ridge, cross-validated", nystroem),
    "exact-ard": ("exact GP, ARD", lambda X, y, X_test: exact(X, y, X_test, ard=True)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder with one folder for each data set")
    parser.add_argument("--sets", default=",".join(SETS), help="data sets, separated by commas")
    parser.add_argument("--splits", type=int, default=3, help="number of the split to stop before")
    parser.add_argument("--first", type=int, default=0, help="first split")
    parser.add_argument("--methods", default=",".join(METHODS), help="methods, separated by commas")
    parser.add_argument("--out", type=Path, default=Path("uci.jsonl"), help="file with one line for each fit")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = [json.loads(line) for line in arguments.out.read_text().splitlines()] if arguments.out.exists() else []
    done = {(row["set"], row["split"], row["method"]) for row in rows}
    for name in arguments.sets.split(","):
        for split in range(arguments.first, arguments.splits):
            X, y, X_test, y_test = load(arguments.data / name, split)
            for method in arguments.methods.split(","):
                if (name, split, method) in done:
                    continue
                began = time.perf_counter()
                mean, std = METHODS[method][1](X, y, X_test)
                seconds = time.perf_counter() - began
                nll = np.mean(0.5 * np.log(2 * np.pi * std**2) + 0.5 * ((y_test - mean) / std) ** 2)
                row = {"set": name, "number": len(X), "split": split, "method": method, "seconds": seconds}
                rows.append({**row, "rmse": float(np.sqrt(np.mean((y_test - mean) ** 2))), "nll": float(nll)})
                print(rows[-1], flush=True)
                with arguments.out.open("a") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
    print("\n| set, N | method | RMSE | / exact | NLL | seconds |\n" + "| --- " * 6 + "|")
    for name in arguments.sets.split(","):
        for method, (title, _) in METHODS.items():
            found = [row for row in rows if row["set"] == name and row["method"] == method]
            if found:
                # One exact fit for each split: the full one, or that with few rows if there is no full one.
                fits = {r["split"]: r["rmse"] for kind in ("exact-few", "exact") for r in rows
                        if r["set"] == name and r["method"] == kind}  # fmt: skip
                reference = [fits[row["split"]] for row in found if row["split"] in fits]
                many = f" ({len(found)} split)" if len(found) < arguments.splits else ""
                rmse, nll, seconds = (np.mean([row[key] for row in found]) for key in ("rmse", "nll", "seconds"))
                ratio = f"{rmse / np.mean(reference):.3f}" if len(reference) == len(found) else ""
                cells = f"{rmse:.4f} | {ratio} | {nll:.3f} | {seconds:.1f}"
                print(f"| {name}, {found[0]['number']} | {title}{many} | {cells} |")


if __name__ == "__main__":
    main()
