"""Figures of Case Study A, with random Fourier features: Fig. 2, A.1, A.2 and A.3; the paper's size at both scales."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from deelbo._extras import require
from deelbo.reproduce.entry import ENTRIES, Claim, Entry, Reproduction, judge
from deelbo.reproduce.panels import markdown_table
from deelbo.reproduce.plan import PlannedRun
from deelbo.reproduce.scales import Scale
from deelbo.reproduce.setup import Setup

Numbers = dict[str, Any]
ERRORS = {"mean_near": "mean near", "std_near": "std near", "mean_far": "mean far", "std_far": "std far"}


class FourierFigure(Entry):
    """A figure of fits to 20 points.

    Args:
        title: What it shows.
        function: Name of the function in `reproduce/rff/figures.py` that makes it.
        claims: Function that judges the paper's claims by the numbers.
        minutes: Minutes on one thread.
    """

    def __init__(
        self, title: str, function: str, claims: Callable[[Numbers], list[Claim]], minutes: float = 1.0
    ) -> None:
        self.title, self._function, self._claims, self._minutes = title, function, claims, minutes

    def trials(self, scale: Scale) -> list[PlannedRun]:
        """Return nothing: no network is trained."""
        return []

    def data(self, scale: Scale) -> list[str]:
        """Return nothing: the data are made up, as in the paper."""
        return []

    def minutes(self, scale: Scale) -> float:
        """Return the minutes on one thread."""
        return self._minutes

    def make(self, setup: Setup) -> Reproduction:
        """Fit the models and draw the figure.

        Raises:
            ValueError: If the seed is out of range.
        """
        with warnings.catch_warnings():  # GPyTorch uses a deprecated part of PyTorch
            warnings.simplefilter("ignore")
            for module in ("sklearn", "scipy", "gpytorch", "matplotlib"):
                require(module, "reproduce")
        if not 0 <= setup.seed < 2**32:
            raise ValueError(f"seed={setup.seed} must be between 0 and 2^32 - 1")
        from deelbo.reproduce.rff import figures

        found = getattr(figures, self._function)(setup.seed, setup.announce)
        fits = found.numbers.get("fits") or found.numbers["regression"]
        return Reproduction(found.numbers, found.figure, _table(fits), self._claims(found.numbers))


def _table(fits: list[Numbers]) -> str:
    names = ("lengthscale", "outputscale", "noise", "scale")

    def shown(value: float | None) -> str:
        return "" if value is None else f"{value:.3g}"

    rows = [
        [fit["method"], *(shown(fit.get(name)) for name in names), *(shown(fit["error"][name]) for name in ERRORS)]
        for fit in fits
    ]
    head = ["method", *names, *(f"error of the {title}" for title in ERRORS.values())]
    return markdown_table(head, rows)


def _errors(numbers: Numbers, key: str = "fits") -> dict[str, dict[str, float]]:
    return {fit["method"]: fit["error"] for fit in numbers[key]}


def _figure_2(numbers: Numbers) -> list[Claim]:
    fits = {fit["method"]: fit for fit in numbers["fits"]}
    errors, ours, elbo = _errors(numbers), fits["iso DE-ELBO (ours)"], fits["iso ELBO"]
    others = [errors[name] for name in fits if name not in (ours["method"], numbers["reference"])]
    near = [ours["error"][name] <= min(other[name] for other in others) for name in ("mean_near", "std_near")]
    return [
        judge(
            "The ELBO matches the prior's variance of 1 and underfits (Lemma 1)",
            [elbo["scale"] > 0.95, elbo["noise"] > 2 * fits[numbers["reference"]]["noise"]],
            f"scale {elbo['scale']:.3f}, noise {elbo['noise']:.2f} (exact: {fits[numbers['reference']]['noise']:.2f})",
        ),
        judge(
            "DE-ELBO approximates the exact posterior's mean and variance near the data best",
            near,
            "; ".join(f"{name}: mean {error['mean_near']:.3f}, std {error['std_near']:.3f}"
                      for name, error in errors.items() if name != numbers["reference"]),
        ),
        judge(
            "DE-ELBO underestimates the variance far from the data",
            [ours["error"]["std_far"] > ours["error"]["std_near"]],
            f"error of the std {ours['error']['std_far']:.2f} far, {ours['error']['std_near']:.3f} near",
        ),
    ]  # fmt: skip


def _figure_a1(numbers: Numbers) -> list[Claim]:
    error = numbers["fits"][0]["error"]
    text = "With 1,024 features the predictive posterior matches the Gaussian process"
    return [judge(text, [value < 0.1 for value in error.values()], ", ".join(f"{k} {v:.3f}" for k, v in error.items()))]


def _figure_a2(numbers: Numbers) -> list[Claim]:
    regression = _errors(numbers, "regression")
    classes = {row["method"]: row["difference_to_gp"] for row in numbers["classification"]}
    ours = next(name for name in regression if "DE-ELBO" in name)
    rivals = [name for name in regression if name not in (ours, numbers["reference"])]
    found = {
        name: {
            "mean near": regression[name]["mean_near"],
            "std near": regression[name]["std_near"],
            "classes": classes[name],
        }
        for name in (*rivals, ours)
    }
    outcomes = [found[ours][key] <= min(found[name][key] for name in rivals) for key in found[ours]]
    evidence = "; ".join(f"{name}: {', '.join(f'{k} {v:.3f}' for k, v in of.items())}" for name, of in found.items())
    return [judge("DE-ELBO approximates the Gaussian process best", outcomes, evidence)]


def _figure_a3(numbers: Numbers) -> list[Claim]:
    errors = {name: error["mean_near"] for name, error in _errors(numbers).items() if name != numbers["reference"]}
    best = min(errors, key=lambda name: errors[name])
    evidence = "error of the mean near the data: " + ", ".join(f"{name} {value:.3f}" for name, value in errors.items())
    return [judge("kappa = D/N fits best", ["D/N" in best], evidence)]


ENTRIES.register("fig-2", "RFF regression by five objectives")(
    FourierFigure(
        "RFF regression: diagEF LA-LML, diagEF LA-CLML, iso ELBO, iso DE-ELBO, true posterior", "figure_2", _figure_2
    )
)
ENTRIES.register("fig-a1", "RFF regression and a Gaussian process")(
    FourierFigure("RFF regression against the Gaussian process it approximates", "figure_a1", _figure_a1, 0.5)
)
ENTRIES.register("fig-a2", "regression and classification with fixed and learned lengthscales")(
    FourierFigure(
        "regression and classification with fixed and learned lengthscales, and a Gaussian process",
        "figure_a2",
        _figure_a2,
        3.0,
    )
)
ENTRIES.register("fig-a3", "RFF regression as kappa grows")(
    FourierFigure("RFF regression as kappa grows: 1, 6, 51.2 = D/N, 181, 1024", "figure_a3", _figure_a3)
)
