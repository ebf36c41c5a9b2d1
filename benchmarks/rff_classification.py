"""RFF classification against a Gaussian process and scikit-learn's usual choices.

    python benchmarks/rff_classification.py [--seeds 3] [--first 0] [--data moons,digits] [--only ours]

Data: make_moons (200 training rows, noise 0.25; 2,000 test rows) and digits (1,257 training rows; 540 test rows), drawn
or split anew for each seed; make_circles (noise 0.2) and make_classification (6 inputs, a tenth of labels random) in
the sizes of make_moons. Inputs are standardised, those of digits divided by 16. Methods with settings to choose do so
by 5-fold cross-validation, and the time includes it.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits, make_circles, make_classification, make_moons
from sklearn.ensemble import RandomForestClassifier
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from deelbo.metrics import compute_metrics
from deelbo.rff import RFFClassifier

Data = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def moons(seed: int) -> Data:
    """Return training inputs, test inputs, training labels and test labels of two moons."""
    return _drawn(*make_moons(2200, noise=0.25, random_state=seed))


def circles(seed: int) -> Data:
    """Return training inputs, test inputs, training labels and test labels of two rings."""
    return _drawn(*make_circles(2200, noise=0.2, factor=0.5, random_state=seed))


def mixed(seed: int) -> Data:
    """Return training and test inputs, then labels, of clusters where a tenth of the labels are random."""
    return _drawn(*make_classification(2200, 6, n_informative=4, flip_y=0.1, random_state=seed))


def _drawn(X: np.ndarray, y: np.ndarray) -> Data:
    scaler = StandardScaler().fit(X[:200])
    return scaler.transform(X[:200]), scaler.transform(X[200:]), y[:200], y[200:]


def digits(seed: int) -> Data:
    """Return training inputs, test inputs, training labels and test labels of scikit-learn's digits."""
    X, y = load_digits(return_X_y=True)
    return tuple(train_test_split(X / 16, y, test_size=0.3, random_state=seed, stratify=y))


def svm(width: int) -> Any:
    """Return an RBF support vector machine with probabilities; cross-validation chooses its cost and gamma."""
    grid = {"C": [1, 10, 100], "gamma": [scale / width for scale in (0.3, 1, 3, 10)]}
    return GridSearchCV(SVC(probability=True, random_state=0), grid, cv=5, scoring="neg_log_loss")


METHODS: dict[str, Callable[[int], Any]] = {
    "**ours, DE-ELBO**": lambda width: RFFClassifier(random_state=0),
    "ours, DE-ELBO, no bound, 2,000 steps": lambda width: RFFClassifier(
        min_lengthscale=0, max_iter=2000, random_state=0
    ),
    "ours, ELBO": lambda width: RFFClassifier(objective="elbo", random_state=0),
    "Gaussian process (scikit-learn, Laplace)": lambda width: GaussianProcessClassifier(
        ConstantKernel(1.0) * RBF(width**0.5), random_state=0
    ),
    "support vector machine, RBF": svm,
    "logistic regression": lambda width: LogisticRegressionCV(cv=5, scoring="neg_log_loss", max_iter=2000),
    "random forest": lambda width: RandomForestClassifier(500, random_state=0),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument(
        "--data", default="moons,digits", help="data sets, separated by commas: moons, digits, circles, mixed"
    )
    parser.add_argument("--only", default="", help="run only methods whose name contains this text")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| data | method | accuracy | NLL | ECE | seconds |\n" + "| --- " * 6 + "|")
    for name in arguments.data.split(","):
        source = {"moons": moons, "digits": digits, "circles": circles, "mixed": mixed}[name]
        for title, make in METHODS.items():
            if arguments.only not in title:
                continue
            found = []
            for seed in range(arguments.first, arguments.first + arguments.seeds):
                X, X_test, y, y_test = source(seed)
                began = time.perf_counter()
                model = make(X.shape[1]).fit(X, y)
                seconds = time.perf_counter() - began
                probabilities = torch.from_numpy(model.predict_proba(X_test)).clamp(1e-12)
                found.append(
                    {**compute_metrics("categorical", probabilities, torch.from_numpy(y_test)), "seconds": seconds}
                )
            cells = {key: np.mean([row[key] for row in found]) for key in ("accuracy", "nll", "ece", "seconds")}
            print(
                f"| {name} | {title} | {cells['accuracy']:.1%} | {cells['nll']:.3f} | {cells['ece']:.3f} | "
                f"{cells['seconds']:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
