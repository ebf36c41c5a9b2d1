"""Beyond the paper: the diagonal posterior beside the isotropic one, which the paper conjectures to work too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from deelbo._wording import duration
from deelbo.likelihoods import Likelihood
from deelbo.metrics import measure
from deelbo.reproduce.entry import ENTRIES, Claim, Entry, Reproduction, judge
from deelbo.reproduce.epochs import make_candidate, train_by_epochs
from deelbo.reproduce.kept_networks import Prepared, Task, prepare
from deelbo.reproduce.panels import markdown_table
from deelbo.reproduce.plan import PlannedRun
from deelbo.reproduce.scales import Scale
from deelbo.reproduce.setup import Setup
from deelbo.training.batches import in_order, labels_of
from deelbo.training.loop import Candidate
from deelbo.training.predictions import predict
from deelbo.training.settings import Settings

TASK = Task()
# AdamW, because each of D scales has a gradient of about 1/D: SGD would leave all of them where they start.
# The objective prefers small ones: at 0.003 and 0.001 both posteriors hardly learn anything.
RATES = {"laptop": (0.0003, 0.0001), "paper": (0.001, 0.0003, 0.0001, 0.00003)}
INIT_SCALE = 3e-3  # about what the isotropic posterior learns, since AdamW moves a scale slowly as well


class DiagonalBesideIsotropic(Entry):
    """Both posteriors trained in the same way, the scales by gradient."""

    title = "the diagonal posterior beside the isotropic one (a conjecture of the paper's discussion)"
    names: ClassVar[tuple[str, ...]] = ("isotropic", "diagonal")

    def _settings(self, scale: Scale, name: str, rate: float) -> Settings:
        return TASK.settings(
            scale,
            method="de-elbo",
            posterior=name,
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
            for name in self.names
            for rate in self._rates(scale)
            for seed in scale.seeds
        ]

    def data(self, scale: Scale) -> list[str]:
        """Return CIFAR-10."""
        return [TASK.dataset]

    def make(self, setup: Setup) -> Reproduction:
        """Train with both posteriors, choose the learning rate by the objective, and test."""
        rows = [self._best(setup, name, seed) for seed in setup.scale.seeds for name in self.names]
        notes = [
            f"Both scales are learned by gradient with AdamW from {INIT_SCALE:g}, from a random classifier, with "
            "frozen statistics of batch normalisation"
        ]
        return Reproduction({"rows": rows}, None, _table(rows), _claims(rows), notes)

    def _best(self, setup: Setup, name: str, seed: int) -> dict[str, Any]:
        """Return the test results of the learning rate with the best objective."""
        found = []
        for rate in self._rates(setup.scale):
            settings = replace(self._settings(setup.scale, name, rate), seed=seed)
            setup.announce(f"{name} posterior, seed {seed}, rate {rate:g}")
            prepared = prepare(TASK, setup, settings)
            candidate = make_candidate(prepared, settings, setup.device)
            train_by_epochs(candidate, prepared.folder(setup, name, settings))
            found.append(_row(prepared, candidate, name, seed))
        return max(found, key=lambda row: row["objective"])


def _row(prepared: Prepared, candidate: Candidate, name: str, seed: int) -> dict[str, Any]:
    device, test_set = candidate.accelerator.device, prepared.test_set
    inputs = [batch for batch, _ in in_order(test_set, candidate.settings.batch_size, device)]
    likelihood: Likelihood = candidate.likelihood
    metrics = measure(likelihood, predict(candidate.network.eval(), likelihood, inputs), labels_of(test_set))
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
