"""Fig. B.7: the training objective and accuracy over the epochs with the network in train and in eval mode."""

from __future__ import annotations

from typing import Any

from deelbo.reproduce.entry import ENTRIES, Claim, Entry, Reproduction, judge
from deelbo.reproduce.epochs import both_modes, make_candidate, train_by_epochs
from deelbo.reproduce.kept_networks import Task, prepare
from deelbo.reproduce.panels import COLOURS, markdown_table, new_figure
from deelbo.reproduce.plan import PlannedRun
from deelbo.reproduce.scales import Scale
from deelbo.reproduce.setup import Setup
from deelbo.training.settings import Settings

RATES = {"laptop": 0.03, "paper": 0.001}  # the paper's choice for N = 1,000
PASS_MINUTES = 0.05  # of four passes over a hundred images
MODES = {"train": COLOURS[1], "eval": COLOURS[3]}


class TrainAndEvalMode(Entry):
    """Batch normalisation by the statistics of a batch or by running averages makes two objectives of one network."""

    title = "train set DE-ELBO and accuracy over the epochs, in train and in eval mode (batch normalisation)"

    def _settings(self, scale: Scale) -> Settings:
        """Return one learning rate with running statistics, which are what the figure is about."""
        rate = (RATES.get(scale.name, RATES["laptop"]),)
        return Task().settings(
            scale, method="de-elbo", learning_rates=rate, lr_search="grid", batch_norm="running", head_start="random"
        )

    def trials(self, scale: Scale) -> list[PlannedRun]:
        """Return one run."""
        settings = self._settings(scale)
        return [
            Task().planned_run(
                scale, "both modes", learning_rates=settings.learning_rates, lr_search="grid", batch_norm="running"
            )
        ]

    def data(self, scale: Scale) -> list[str]:
        """Return the dataset of Fig. 1."""
        return ["cifar10"]

    def minutes(self, scale: Scale) -> float:
        """Return the minutes for four passes over the training set after each epoch."""
        settings = self._settings(scale)
        epochs = settings.steps * settings.batch_size / scale.kept_size
        return epochs * PASS_MINUTES * scale.kept_size / 100 if scale.name == "laptop" else 0.0

    def make(self, setup: Setup) -> Reproduction:
        """Train, and measure in both modes after every epoch."""
        settings = self._settings(setup.scale)
        setup.announce("a training measured after every epoch")
        prepared = prepare(Task(), setup, settings)
        candidate = make_candidate(prepared, settings, setup.device)
        rows = train_by_epochs(candidate, prepared.folder(setup, "both-modes", settings), both_modes)
        numbers = {"rows": rows, "learning_rate": candidate.learning_rate, "num_data": candidate.num_data}
        return Reproduction(numbers, self._draw(rows), self._table(rows), self._claims(rows))

    def _draw(self, rows: list[dict[str, float]]) -> Any:
        figure, axes = new_figure(1, 2, width=3.4)
        shown = (("objective", "train set J / (κN)", 1), ("accuracy", "train set accuracy, %", 100))
        for axis, (name, title, factor) in zip(axes[0], shown, strict=True):
            for mode, colour in MODES.items():
                values = [factor * row[f"{name}_{mode}"] for row in rows]
                axis.plot([row["epoch"] for row in rows], values, color=colour, label=f"{mode} mode")
            axis.set_xlabel("epoch", fontsize=8)
            axis.set_ylabel(title, fontsize=8)
        axes[0][0].legend(fontsize=8, frameon=False)
        return figure

    def _table(self, rows: list[dict[str, float]]) -> str:
        chosen = [rows[i] for i in sorted({0, len(rows) // 2, len(rows) - 1})]
        head = ["epoch", *(f"{name}, {mode} mode" for name in ("J / (κN)", "accuracy, %") for mode in MODES)]
        cells = [
            [
                f"{row['epoch']:.3g}",
                *(f"{row[f'objective_{mode}']:.3f}" for mode in MODES),
                *(f"{100 * row[f'accuracy_{mode}']:.1f}" for mode in MODES),
            ]
            for row in chosen
        ]
        return markdown_table(head, cells)

    def _claims(self, rows: list[dict[str, float]]) -> list[Claim]:
        gaps = [abs(row["objective_train"] - row["objective_eval"]) for row in rows]
        points = [100 * abs(row["accuracy_train"] - row["accuracy_eval"]) for row in rows]
        return [
            judge(
                "With batch normalisation the objective and accuracy on the training set change between the two modes",
                [max(gaps) > 0.05, max(points) > 1],
                f"the largest differences are {max(gaps):.2f} nats an example and {max(points):.1f} points",
            )
        ]


ENTRIES.register("fig-b7", "train mode against eval mode over the epochs")(TrainAndEvalMode())
