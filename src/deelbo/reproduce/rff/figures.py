"""The figures of Case Study A: which models are fitted for each panel, and the numbers for the JSON file."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from deelbo.reproduce.rff import drawing, gaussian_process, grid_search
from deelbo.reproduce.rff.demos import NUM_FEATURES, Fit, errors, moons, regression, rff_fit
from deelbo.reproduce.rff.laplace import la_clml, la_lml
from deelbo.rff import RFFClassifier, RFFRegressor

KAPPAS = (1.0, 6.0, 51.2, 181.0, 1024.0)  # D/N = 51.2
Announce = Callable[[str], None]


@dataclass(frozen=True)
class Reproduction:
    """A reproduced figure and its numbers.

    Args:
        figure: Figure of matplotlib.
        numbers: Learned values and errors of each fit, to be written to the JSON file.
    """

    figure: Any
    numbers: dict[str, Any]


def _learned(title: str, objective: str, seed: int, **settings: Any) -> Fit:
    x, y = regression()
    with warnings.catch_warnings(record=True) as caught:  # warnings go into the JSON file
        warnings.simplefilter("always")
        model = RFFRegressor(NUM_FEATURES, objective=objective, normalize_y=False, random_state=seed, **settings)
        fit = rff_fit(title, model.fit(x, y))
    fit.warnings = [str(warning.message) for warning in caught]
    return fit


def fits_of_figure_2(seed: int, announce: Announce) -> list[Fit]:
    """Return the five fits of Fig. 2; the last one, the exact posterior, is the reference for errors."""
    x, y = regression()
    announce("diagEF LA-LML")
    fits = [la_lml(x, y, seed)]
    announce("diagEF LA-CLML")
    fits.append(la_clml(x, y, seed))
    for title, objective in (("iso ELBO", "elbo"), ("iso DE-ELBO (ours)", "de-elbo"), ("true posterior, LML", "lml")):
        announce(title)
        fits.append(_learned(title, objective, seed))
    return fits


def figure_2(seed: int, announce: Announce) -> Reproduction:
    """Return Fig. 2: RFF regression with hyperparameters chosen by five objectives."""
    return _panels(fits_of_figure_2(seed, announce), seed)


def figure_a1(seed: int, announce: Announce) -> Reproduction:
    """Return Fig. A.1: RFF regression and the Gaussian process that it approximates."""
    x, y = regression()
    announce("RFF, LML")
    ours = _learned("RFF (learned)\nLML", "lml", seed)
    announce("Gaussian process")
    return _panels([ours, gaussian_process.regression_fit(x, y)], seed)


def figure_a2(seed: int, announce: Announce) -> Reproduction:
    """Return Fig. A.2: regression and classification with fixed and learned lengthscales, and a Gaussian process."""
    x, y = regression()
    fits = []
    for lengthscale in (1.0, 20.0):
        announce(f"regression, lengthscale {lengthscale:g}")
        fits.append(grid_search.regression_fit(x, y, lengthscale, seed))
    for title, objective in (("RFF (learned)\nELBO", "elbo"), ("RFF (learned)\nDE-ELBO (ours)", "de-elbo")):
        announce(f"regression, {objective}")
        fits.append(_learned(title, objective, seed))
    announce("regression, Gaussian process")
    fits.append(gaussian_process.regression_fit(x, y))
    maps = _class_maps(seed, announce)
    numbers = {
        "seed": seed,
        "reference": _name(fits[-1]),
        "regression": [_row(fit, fits[-1]) for fit in fits],
        "classification": [
            {"method": _name(fit), **learned, "difference_to_gp": _difference(probabilities, maps[-1][1])}
            for fit, (learned, probabilities) in zip(fits, maps, strict=True)
        ],
    }
    panels = [probabilities.reshape(drawing.SIDE, drawing.SIDE) for _, probabilities in maps]
    return Reproduction(drawing.demos(fits, regression(), panels, moons()), numbers)


def _class_maps(seed: int, announce: Announce) -> list[tuple[dict[str, Any], np.ndarray]]:
    """Return for each column the learned values and the probability of the second class on a grid."""
    x, labels = moons()
    where = drawing.plane(x)
    maps: list[tuple[dict[str, Any], np.ndarray]] = []
    for lengthscale in (1.0, 20.0):
        announce(f"classification, lengthscale {lengthscale:g}")
        probabilities, learned = grid_search.classification_probabilities(x, labels, where, lengthscale, seed)
        maps.append((learned, probabilities[:, 1]))
    for objective in ("elbo", "de-elbo"):
        announce(f"classification, {objective}")
        model = RFFClassifier(
            NUM_FEATURES, objective=objective, min_lengthscale=0, max_iter=1000, random_state=seed
        ).fit(x, labels)
        names = ("lengthscale", "outputscale", "scale", "objective")
        maps.append(({n: getattr(model, f"{n}_") for n in names}, model.predict_proba(where)[:, 1]))
    announce("classification, Gaussian process")
    probabilities, learned = gaussian_process.classification_probabilities(x, labels, where)
    return [*maps, (learned, probabilities[:, 1])]


def figure_a3(seed: int, announce: Announce) -> Reproduction:
    """Return Fig. A.3: RFF regression for growing kappa, where D/N = 51.2."""
    fits = []
    for kappa in KAPPAS:
        announce(f"kappa = {kappa:g}")
        fits.append(_learned(f"κ = {kappa:g}" + (" = D/N" if kappa == 51.2 else ""), "de-elbo", seed, kappa=kappa))
    announce("true posterior")
    reference = _learned("true posterior, LML", "lml", seed)
    numbers = {
        "seed": seed,
        "reference": _name(reference),
        "fits": [_row(fit, reference) for fit in [*fits, reference]],
    }
    return Reproduction(drawing.row(fits, regression()), numbers)


def _panels(fits: list[Fit], seed: int) -> Reproduction:
    numbers = {"seed": seed, "reference": _name(fits[-1]), "fits": [_row(fit, fits[-1]) for fit in fits]}
    return Reproduction(drawing.row(fits, regression()), numbers)


def _row(fit: Fit, reference: Fit) -> dict[str, Any]:
    row = {"method": _name(fit), **fit.learned, "error": errors(fit, reference, regression()[0])}
    return {**row, "warnings": fit.warnings} if fit.warnings else row


def _name(fit: Fit) -> str:
    return fit.title.replace("\n", ", ")


def _difference(probabilities: np.ndarray, reference: np.ndarray) -> float:
    return float(np.abs(probabilities - reference).mean())
