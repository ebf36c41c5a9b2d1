"""Beyond the paper: the diagonal posterior beside the isotropic one, which the paper conjectures to work too."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar

from deelbo._wording import duration
from deelbo.likelihoods import Likelihood
from deelbo.methods.variational import DataEmphasized
from deelbo.metrics import compute_metrics
from deelbo.objective import DataEmphasizedELBO
from deelbo.posteriors import DiagonalPosterior
from deelbo.reproduce.entry import ENTRIES, Claim, Entry, Reproduction, judge
from deelbo.reproduce.epochs import make_candidate, train_by_epochs
from deelbo.reproduce.kept_networks import Prepared, Task, prepare
from deelbo.reproduce.panels import markdown_table
from deelbo.reproduce.plan import PlannedRun
from deelbo.reproduce.scales import Scale
from deelbo.reproduce.setup import Setup
from deelbo.training.batches import in_order, labels_of
from deelbo.training.loop import Candidate
from deelbo.training.method import MethodInputs, variances_by_column
from deelbo.training.predictions import predict
from deelbo.training.settings import Settings

TASK = Task()
# AdamW, because each of D scales has a gradient of about 1/D: SGD would leave all of them where they start.
RATES = {"laptop": (0.003, 0.001), "paper": (0.003, 0.001, 0.0003, 0.0001)}
INIT_SCALE = 3e-3  # about what the isotropic posterior learns, since AdamW moves a scale slowly as well


class MeanField(DataEmphasized):
    """DE-ELBO with one learned scale for each weight, moved by the optimizer.

    Args:
        inputs: Network, prior, likelihood and settings.
        kappa: How much the data are emphasised.
    """

    def __init__(self, inputs: MethodInputs, kappa: float) -> None:
        self.settings = settings = inputs.settings
        self._posterior: Any = DiagonalPosterior(inputs.network, init_scale=settings.init_scale, seed=settings.seed)
        self.prior = inputs.prior
        self.elbo = DataEmphasizedELBO(self._posterior, inputs.prior, inputs.num_data, kappa)

    def learned(self) -> dict[str, float]:
        """Return the prior variances, the geometric mean of the scales, kappa and KL/(kappa N)."""
        scale = math.exp(float(self._posterior.scale.detach().double().log().mean()))
        kl = float(self.elbo.kl()) / self.objective_scale
        return {**variances_by_column(self.prior), "scale": scale, "kappa": self.elbo.kappa, "kl": kl}


class DiagonalBesideIsotropic(Entry):
    """Both posteriors trained in the same way, the scales by gradient."""

    title = "the diagonal posterior beside the isotropic one (a conjecture of the paper's discussion)"
    methods: ClassVar[dict[str, type[DataEmphasized]]] = {"isotropic": DataEmphasized, "diagonal": MeanField}

    def _settings(self, scale: Scale, rate: float) -> Settings:
        return TASK.settings(
            scale,
            method="de-elbo",
            learning_rates=(rate,),
            lr_search="grid",
            optimizer="adamw",
            init_scale=INIT_SCALE,
            scale_update="gradient",
            head_start="random",
            batch_norm="frozen",
        )

    def _rates(self, scale: Scale) -> tuple[float, ...]:
        return RATES.get(scale.name, RATES["laptop"])

    def trials(self, scale: Scale) -> list[PlannedRun]:
        """Return a run with each posterior and learning rate on each training set."""
        return [
            replace(
                TASK.planned_run(scale, f"{name}, {rate:g}, {seed}", learning_rates=(rate,), seed=seed), method=name
            )
            for name in self.methods
            for rate in self._rates(scale)
            for seed in scale.seeds
        ]

    def data(self, scale: Scale) -> list[str]:
        """Return CIFAR-10."""
        return [TASK.dataset]

    def make(self, setup: Setup) -> Reproduction:
        """Train with both posteriors, choose the learning rate by the objective, and test."""
        rows = [self._best(setup, name, seed) for seed in setup.scale.seeds for name in self.methods]
        notes = [
            f"Both scales are learned by gradient with AdamW from {INIT_SCALE:g}, from a random classifier, with "
            "frozen statistics of batch normalisation"
        ]
        return Reproduction({"rows": rows}, None, _table(rows), _claims(rows), notes)

    def _best(self, setup: Setup, name: str, seed: int) -> dict[str, Any]:
        """Return the test results of the learning rate with the best objective."""
        found = []
        for rate in self._rates(setup.scale):
            settings = replace(self._settings(setup.scale, rate), seed=seed)
            setup.announce(f"{name} posterior, seed {seed}, rate {rate:g}")
            prepared = prepare(TASK, setup, settings)
            candidate = make_candidate(prepared, settings, setup.device, self.methods[name].make)
            train_by_epochs(candidate, prepared.folder(setup, name, settings))
            found.append(_row(prepared, candidate, name, seed))
        return max(found, key=lambda row: row["objective"])


def _row(prepared: Prepared, candidate: Candidate, name: str, seed: int) -> dict[str, Any]:
    device, test_set = candidate.accelerator.device, prepared.test_set
    inputs = [batch for batch, _ in in_order(test_set, candidate.settings.batch_size, device)]
    likelihood: Likelihood = candidate.likelihood
    metrics = compute_metrics(
        likelihood.name, predict(candidate.network.eval(), likelihood, inputs), labels_of(test_set)
    )
    return {
        "posterior": name,
        "seed": seed,
        "learning_rate": candidate.learning_rate,
        "objective": candidate.objective(final=True) / candidate.method.objective_scale,
        "seconds": candidate.clock["steps"],
        "parameters": sum(p.numel() for p in candidate.method.parameters()),
        **candidate.method.learned(),
        **metrics,
    }


def _by_posterior(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    names = ("balanced_accuracy", "nll", "ece", "objective", "scale", "kl", "seconds", "parameters")
    return {
        posterior: {name: sum(row[name] for row in of) / len(of) for name in names}
        for posterior in dict.fromkeys(row["posterior"] for row in rows)
        if (of := [row for row in rows if row["posterior"] == posterior])
    }


def _table(rows: list[dict[str, Any]]) -> str:
    cells = [
        [name, f"{100 * row['balanced_accuracy']:.1f}", f"{row['nll']:.3g}", f"{100 * row['ece']:.1f}",
         f"{row['objective']:.3f}", f"{row['kl']:.3f}", f"{row['scale']:.2e}", f"{row['parameters']:,.0f}",
         duration(row["seconds"])]
        for name, row in _by_posterior(rows).items()
    ]  # fmt: skip
    head = ["posterior", "accuracy, %", "NLL", "ECE, %", "J/(κN)", "KL/(κN)", "scale (geometric mean)", "parameters",
            "time of a run"]  # fmt: skip
    return markdown_table(head, cells)


def _claims(rows: list[dict[str, Any]]) -> list[Claim]:
    of = _by_posterior(rows)
    accuracy = {name: 100 * row["balanced_accuracy"] for name, row in of.items()}
    return [
        judge(
            "DE-ELBO works reasonably with a diagonal covariance: at most 2 points less accurate than isotropic",
            [accuracy["diagonal"] >= accuracy["isotropic"] - 2],
            f"{accuracy['diagonal']:.1f} % against {accuracy['isotropic']:.1f} %",
        )
    ]


ENTRIES.register("diagonal", "the diagonal posterior beside the isotropic one")(DiagonalBesideIsotropic())
