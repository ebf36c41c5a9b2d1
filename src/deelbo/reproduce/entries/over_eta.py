"""Objectives over the prior variance eta = lambda = tau: Fig. 1a (ELBO, DE-ELBO), Fig. B.8 (importance weighted)."""

from __future__ import annotations

from typing import Any

from deelbo.reproduce.entry import ENTRIES, Claim, Entry, Reproduction, judge
from deelbo.reproduce.eta import ETAS, Draws, draw, importance_weighted_over_eta, objective_over_eta
from deelbo.reproduce.kept_networks import KeptNetwork, keep_pair, planned_pair
from deelbo.reproduce.panels import PINK, PURPLE, markdown_table, new_figure
from deelbo.reproduce.plan import PlannedRun
from deelbo.reproduce.published import FIGURE_1
from deelbo.reproduce.scales import Scale
from deelbo.reproduce.setup import Setup

SAMPLES = 10  # draws for the expected log-likelihood
RIGHT = len(ETAS) // 2  # the half of the values of eta whose lowest objective is drawn


def _argmax(values: list[float]) -> int:
    return values.index(max(values))


class OverEta(Entry):
    """Which of two trained posteriors an objective prefers, over eta.

    Args:
        title: What it shows.
        prefix: "" for the plain objectives, "IW" for the importance-weighted ones.
    """

    def __init__(self, title: str, prefix: str = "") -> None:
        self.title, self.prefix = title, prefix

    def trials(self, scale: Scale) -> list[PlannedRun]:
        """Return the runs of the two networks."""
        return planned_pair(scale)

    def data(self, scale: Scale) -> list[str]:
        """Return the dataset of Fig. 1."""
        return ["cifar10"]

    def minutes(self, scale: Scale) -> float:
        """Return the minutes for the draws: a pass over the training set for each."""
        return (scale.samples if self.prefix else SAMPLES) * 0.03 if scale.name == "laptop" else 0.0

    def make(self, setup: Setup) -> Reproduction:
        """Train both networks, and evaluate both objectives of each over eta."""
        networks = dict(zip(("elbo", "de-elbo"), keep_pair(setup), strict=True))
        emphasis = networks["de-elbo"].objective.kappa
        samples = setup.scale.samples if self.prefix else SAMPLES
        values: dict[str, dict[str, list[float]]] = {}
        draws: dict[str, Draws] = {}
        for name, kept in networks.items():
            setup.announce(f"{samples} draws from the posterior trained on the {name.upper()}")
            draws[name] = draw(kept.objective, kept.log_likelihood, samples)
            values[name] = {
                objective: self._over_eta(kept, draws[name], kappa)
                for objective, kappa in (("elbo", 1.0), ("de-elbo", emphasis))
            }
        accuracies = {name: kept.test_accuracy for name, kept in networks.items()}
        numbers = {
            "etas": list(ETAS),
            "values": values,
            "test_accuracy": accuracies,
            "kappa": emphasis,
            "samples": samples,
            "scale": {name: kept.result.scale for name, kept in networks.items()},
            "learning_rate": {name: kept.result.learning_rate for name, kept in networks.items()},
        }
        if self.prefix:
            numbers["plain"] = {
                name: {
                    objective: objective_over_eta(kept.objective, draws[name], kappa)
                    for objective, kappa in (("elbo", 1.0), ("de-elbo", emphasis))
                }
                for name, kept in networks.items()
            }
        return Reproduction(numbers, self._draw(numbers), self._table(numbers), self._claims(numbers))

    def _over_eta(self, kept: KeptNetwork, draws: Draws, kappa: float) -> list[float]:
        function = importance_weighted_over_eta if self.prefix else objective_over_eta
        return function(kept.objective, draws, kappa)

    def _name(self, objective: str) -> str:
        return {"elbo": f"{self.prefix}ELBO", "de-elbo": f"DE-{self.prefix}ELBO"}[objective]

    def _draw(self, numbers: dict[str, Any]) -> Any:
        figure, axes = new_figure(1, 2, width=3.6)
        for axis, objective in zip(axes[0], ("elbo", "de-elbo"), strict=True):
            curves = {name: numbers["values"][name][objective] for name in ("elbo", "de-elbo")}
            for name, colour in (("elbo", PINK), ("de-elbo", PURPLE)):
                accuracy = 100 * numbers["test_accuracy"][name]
                label = f"q trained on {self._plain(name)}: test accuracy {accuracy:.1f} %"
                axis.plot(numbers["etas"], curves[name], color=colour, label=label)
                best = _argmax(curves[name])
                axis.plot([ETAS[best]], [curves[name][best]], marker="o", markersize=4, color=colour)
            top, bottom = max(map(max, curves.values())), min(min(curve[RIGHT:]) for curve in curves.values())
            axis.set_ylim(bottom - 0.05 * (top - bottom), top + 0.08 * (top - bottom))  # the left ends fall like 1/eta
            axis.set_xscale("log")
            axis.set_xlabel("η = λ = τ", fontsize=8)
            axis.set_title(f"objective: {self._name(objective)}", fontsize=9)
        axes[0][0].set_ylabel("objective, nats", fontsize=8)
        handles, labels = axes[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=8, frameon=False)
        return figure

    @staticmethod
    def _plain(name: str) -> str:
        return {"elbo": "ELBO", "de-elbo": "DE-ELBO"}[name]

    def _table(self, numbers: dict[str, Any]) -> str:
        rows = []
        for name, found in numbers["values"].items():
            best = {objective: _argmax(curve) for objective, curve in found.items()}
            cells = [f"{found[o][best[o]]:.4g} at {ETAS[best[o]]:.2g}" for o in ("elbo", "de-elbo")]
            accuracy = f"{100 * numbers['test_accuracy'][name]:.1f} % ({FIGURE_1[name]} %)"
            rows.append([self._plain(name), accuracy, *cells])
        head = ["q trained on", "test accuracy (the paper's)", *(f"best {self._name(o)}" for o in ("elbo", "de-elbo"))]
        return markdown_table(head, rows)

    def _claims(self, numbers: dict[str, Any]) -> list[Claim]:
        claims = []
        for objective, preferred, other in (("elbo", "elbo", "de-elbo"), ("de-elbo", "de-elbo", "elbo")):
            ours, rival = (numbers["values"][name][objective] for name in (preferred, other))
            share = sum(a > b for a, b in zip(ours, rival, strict=True)) / len(ETAS)
            claims.append(
                judge(
                    f"The {self._name(objective)} prefers the posterior trained on the {self._plain(preferred)}",
                    [max(ours) > max(rival)],
                    f"best value {max(ours):.4g} against {max(rival):.4g}; it is the higher one at {share:.0%} of the "
                    "values of eta",
                )
            )
        accuracy = {name: 100 * value for name, value in numbers["test_accuracy"].items()}
        claims.append(
            judge(
                "The posterior trained on the DE-ELBO has the higher test accuracy",
                [accuracy["de-elbo"] > accuracy["elbo"]],
                f"{accuracy['de-elbo']:.1f} % against {accuracy['elbo']:.1f} % (the paper: {FIGURE_1['de-elbo']} % and "
                f"{FIGURE_1['elbo']} %)",
            )
        )
        if self.prefix:
            gains = []  # relative to the range of values over eta, which is the scale of the figure's axis
            for name in ("elbo", "de-elbo"):
                weighted, plain = numbers["values"][name]["elbo"], numbers["plain"][name]["elbo"]
                span = max(plain) - min(plain)
                gains += [(tighter - loose) / span for tighter, loose in zip(weighted, plain, strict=True)]
            claims.append(
                judge(
                    "The IWELBO is higher than the ELBO at every eta, but slightly, on the scale of the figure",
                    [min(gains) >= 0, max(gains) < 0.01],
                    f"by {min(gains):.1e} to {max(gains):.1e} of the range of the ELBO over eta",
                )
            )
        return claims


ENTRIES.register("fig-1a", "ELBO and DE-ELBO of two posteriors over the prior variance")(
    OverEta("ELBO and DE-ELBO over eta = lambda = tau, of a posterior trained on each")
)
ENTRIES.register("fig-b8", "IWELBO and DE-IWELBO of two posteriors over the prior variance")(
    OverEta("IWELBO and DE-IWELBO with S = 50 over eta = lambda = tau, of a posterior trained on each", "IW")
)
