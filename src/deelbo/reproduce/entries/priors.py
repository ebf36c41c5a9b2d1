"""Tab. 1: the priors of the paper, checked on a network: where each has its mean, and where training starts."""

from __future__ import annotations

import torch
from torch import Tensor

from deelbo.data import Targets
from deelbo.models import load_model
from deelbo.priors import PriorGroup, make_recipe
from deelbo.reproduce.entry import ENTRIES, Claim, Entry, Reproduction, judge
from deelbo.reproduce.panels import markdown_table
from deelbo.reproduce.plan import PlannedRun
from deelbo.reproduce.scales import Scale
from deelbo.reproduce.setup import Setup

FORMULAS = {"L2-zero": "N(0, λ I)", "L2-SP": "N(μ, λ I)", "PTYL": "N(μ, λ Σ)"}


class Priors(Entry):
    """The mean and the covariance of p(w) for each prior, measured against the pretrained weights mu."""

    title = "the priors p(w) and where training starts"

    def trials(self, scale: Scale) -> list[PlannedRun]:
        """Return nothing: no network is trained."""
        return []

    def data(self, scale: Scale) -> list[str]:
        """Return nothing."""
        return []

    def models(self, scale: Scale) -> list[str]:
        """Return the network whose weights the priors are around."""
        return [scale.models["ResNet-50"].model]

    def minutes(self, scale: Scale) -> float:
        """Return the minutes for loading the network three times."""
        return 0.2

    def make(self, setup: Setup) -> Reproduction:
        """Make each prior for the scale's ResNet-50 with ten classes."""
        spec = setup.model_spec("ResNet-50", "image")
        targets = Targets("classification", [f"class {i}" for i in range(10)])
        rows: dict[str, dict[str, float | str]] = {}
        notes = []
        for title in FORMULAS:
            if (prior := setup.prior(title)) is None:
                notes.append(f"the prior {title} was left out: it needs the posterior of a source task")
                continue
            network, _ = load_model(spec.model, "image", targets, weights=spec.weights, image_size=spec.image_size)
            recipe = make_recipe(prior)
            group = recipe.make(network, spec.head).named_groups()["backbone"]
            pretrained = _flat(group)
            recipe.start(network, spec.head)
            mean = torch.zeros_like(pretrained) if group.mean is None else _flat_tensors(list(group.mean.buffers()))
            source = pretrained if title != "PTYL" else mean
            rows[title] = {
                "norm_of_mean": float(mean.norm()),
                "mean_to_mu": float((mean - source).norm()),
                "start_to_mu": float((_flat(group) - source).norm()),
                "norm_of_mu": float(source.norm()),
                "covariance": type(group.covariance).__name__,
            }
        table = markdown_table(
            ["method", "p(w)", "norm of the mean", "mean − μ", "start − μ", "norm of μ", "covariance"],
            [
                [title, FORMULAS[title], *(f"{row[key]:.4g}" for key in _NUMBERS), str(row["covariance"])]
                for title, row in rows.items()
            ],
        )
        return Reproduction({"priors": rows}, None, table, _claims(rows), notes)


_NUMBERS = ("norm_of_mean", "mean_to_mu", "start_to_mu", "norm_of_mu")


def _claims(rows: dict[str, dict[str, float | str]]) -> list[Claim]:
    outcomes = [
        row["start_to_mu"] == 0
        and (row["norm_of_mean"] == 0 if title == "L2-zero" else row["mean_to_mu"] == 0)
        and (row["covariance"] == "Identity") == (title != "PTYL")
        for title, row in rows.items()
    ]
    return [
        judge("All start at μ; the mean is 0 for L2-zero, else μ; Σ differs from I for PTYL", outcomes, "see table")
    ]


def _flat(group: PriorGroup) -> Tensor:
    return _flat_tensors(group.weights)


def _flat_tensors(tensors: list[Tensor] | list[torch.nn.Parameter]) -> Tensor:
    return torch.cat([tensor.detach().double().flatten() for tensor in tensors])


ENTRIES.register("tab-1", "the priors")(Priors())
