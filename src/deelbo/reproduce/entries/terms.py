"""Fig. 1b: both terms of the objective over the epochs, ELBO beside DE-ELBO."""

from __future__ import annotations

from typing import Any

from deelbo.reproduce.entry import ENTRIES, Claim, Entry, Reproduction, judge
from deelbo.reproduce.kept_networks import KeptNetwork, keep_pair, planned_pair
from deelbo.reproduce.panels import PINK, PURPLE, markdown_table, new_figure
from deelbo.reproduce.plan import PlannedRun
from deelbo.reproduce.scales import Scale
from deelbo.reproduce.setup import Setup

TITLES = {"elbo": "ELBO", "de-elbo": "DE-ELBO"}
COLOURS = {"elbo": PINK, "de-elbo": PURPLE}


def terms_of(kept: KeptNetwork) -> list[dict[str, float]]:
    """Return kappa E_q[log p(y | theta)] and -KL after each epoch, in nats; the first from the epoch's own batches."""
    result = kept.result
    rows = [row for row in result.history if row["learning_rate"] == result.learning_rate]
    size = result.objective_scale  # kappa N; the history has both terms divided by it
    return [{"epoch": row["epoch"], "likelihood": -size * row["nll"], "kl": -size * row["kl"]} for row in rows]


class TermsOverEpochs(Entry):
    """The log-likelihood term and the KL term of the objective during training."""

    title = "both terms of the objective over the epochs, ELBO beside DE-ELBO"

    def trials(self, scale: Scale) -> list[PlannedRun]:
        """Return the runs of the two networks of Fig. 1a."""
        return planned_pair(scale)

    def data(self, scale: Scale) -> list[str]:
        """Return the dataset of Fig. 1."""
        return ["cifar10"]

    def make(self, setup: Setup) -> Reproduction:
        """Train both networks, or read them, and draw their histories."""
        kept = dict(zip(("elbo", "de-elbo"), keep_pair(setup), strict=True))
        terms = {name: terms_of(network) for name, network in kept.items()}
        numbers = {
            "terms": terms,
            "num_data": kept["elbo"].result.num_data,
            "num_params": kept["elbo"].result.num_params,
            "kappa": kept["de-elbo"].objective.kappa,
        }
        return Reproduction(numbers, self._draw(terms), self._table(numbers), self._claims(numbers))

    def _draw(self, terms: dict[str, list[dict[str, float]]]) -> Any:
        figure, axes = new_figure(1, 2, width=3.4)
        for axis, (name, rows) in zip(axes[0], terms.items(), strict=True):
            epochs = [row["epoch"] for row in rows]
            axis.plot(epochs, [row["likelihood"] for row in rows], color=COLOURS[name], label="κ E[log p(y | θ)]")
            axis.plot(epochs, [row["kl"] for row in rows], color=COLOURS[name], linestyle="--", label="−KL(q ‖ p)")
            axis.set_xlabel("epoch", fontsize=8)
            axis.set_title(f"trained on {TITLES[name]}", fontsize=9)
            axis.legend(fontsize=8, frameon=False)
        axes[0][0].set_ylabel("nats", fontsize=8)
        return figure

    def _table(self, numbers: dict[str, Any]) -> str:
        rows = []
        for name, found in numbers["terms"].items():
            for term, title in (("likelihood", "κ E[log p]"), ("kl", "−KL")):
                rows.append([TITLES[name], title, f"{found[0][term]:.4g}", f"{found[-1][term]:.4g}"])
        return markdown_table(["trained on", "term", "after the first epoch", "at the end"], rows)

    def _claims(self, numbers: dict[str, Any]) -> list[Claim]:
        first, last = ({name: found[i] for name, found in numbers["terms"].items()} for i in (0, -1))
        progress = {name: 1 - last[name]["likelihood"] / first[name]["likelihood"] for name in first}
        towards_zero = 1 - last["elbo"]["kl"] / first["elbo"]["kl"]
        return [
            judge(
                "Under the ELBO the KL term goes to zero while the likelihood makes no visible progress",
                [towards_zero > 0.5, progress["elbo"] < 0.2],
                f"the KL falls by {towards_zero:.0%}, the training NLL by {progress['elbo']:.0%}",
            ),
            judge(
                "Under the DE-ELBO the likelihood improves",
                [progress["de-elbo"] > 0.5],
                f"the training NLL falls by {progress['de-elbo']:.1%}",
            ),
        ]


ENTRIES.register("fig-1b", "terms of ELBO and DE-ELBO over the epochs")(TermsOverEpochs())
