"""An experiment of Case Study B: one network on one dataset, with a prior and the methods that the paper compares.

A study gives the same problems of `compare` to every entry, so that entries share their runs by the records.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from deelbo._modules import trainable
from deelbo.compare import (
    Comparison,
    KnownRecords,
    Options,
    Problem,
    Records,
    Trial,
    compare,
    make_problems,
    make_strategies,
)
from deelbo.compare.problem import kappa_sweep
from deelbo.compare.results import Row, rows_of
from deelbo.compare.running import inspect_model
from deelbo.compare.strategies import Strategy
from deelbo.reproduce.costs import laptop_seconds, paper_seconds
from deelbo.reproduce.entry import Entry
from deelbo.reproduce.plan import PlannedRun
from deelbo.reproduce.scales import DATASETS, METHODS, Scale
from deelbo.reproduce.setup import PRIORS, MissingDataError, Setup
from deelbo.specs import DataSpec
from deelbo.training.search import planned_steps

LEFT_OUT = "{} was left out: {}"


@dataclass(frozen=True)
class Study:
    """A network on a dataset, with a prior and some methods.

    Args:
        network: Name of the network in the paper.
        dataset: Name of the dataset.
        prior: Name of the prior in the paper.
        methods: Methods that are wanted; those that the paper compares with this network and prior if None.
        largest: Whether only the largest training size is wanted.
        sweep: Whether DE-ELBO is run with kappas from 1 to D beside D/N.
        training_sets: How many of the scale's training sets are used; all if None.
    """

    network: str
    dataset: str
    prior: str = "L2-SP"
    methods: tuple[str, ...] | None = None
    largest: bool = False
    sweep: bool = False
    training_sets: int | None = None

    @property
    def kind(self) -> str:
        """Kind of the inputs, "image" or "text"."""
        return DATASETS[self.dataset].kind

    def sizes(self, scale: Scale) -> tuple[int, ...]:
        """Return the training sizes."""
        return scale.sizes[self.dataset][-1:] if self.largest else scale.sizes[self.dataset]

    def seeds(self, scale: Scale) -> tuple[int, ...]:
        """Return the seeds of the training sets."""
        return scale.seeds[: self.training_sets]

    def options(self, scale: Scale, num_params: int) -> Options:
        """Return the options of the comparison.

        LA-CLML uses the cells of MAP's grid. Where the paper has both, both are run even if one is wanted, because its
        records have no weights: asked for later, LA-CLML would train every cell again.

        Args:
            scale: The scale.
            num_params: D, for the sweep over kappa.
        """
        methods = METHODS[self.network, self.prior] if self.methods is None else self.methods
        if "map-grid" in methods and "la-clml" not in methods and self._has_conditional(scale):
            methods = (*methods, "la-clml")
        kappas: tuple[float | None, ...] = (None, *kappa_sweep(num_params, scale.kappas)) if self.sweep else (None,)
        settings = {"likelihood": "categorical", **scale.settings[self.kind]}
        return Options(methods=methods, settings=settings, kappas=kappas, **scale.options[self.kind])

    def _has_conditional(self, scale: Scale) -> bool:
        """Tell whether LA-CLML is compared with this prior and model, under this or another name of the network."""
        same = [name for name, spec in scale.models.items() if spec == scale.models[self.network]]
        return any("la-clml" in METHODS.get((name, self.prior), ()) for name in same)

    # ---- without data ----

    def planned_problem(self, scale: Scale, size: int, seed: int) -> Problem:
        """Return a problem as far as it is known without data and weights.

        Args:
            scale: The scale.
            size: N, the size of the training set.
            seed: Seed of the training set.
        """
        return Problem(
            data_spec=DataSpec(self.dataset, train_size=size),
            model_spec=scale.models[self.network],
            data=self.dataset,
            network=f"{scale.models[self.network]}, {self.prior}",
            prior=PRIORS.get(self.prior, f"ptyl:{self.prior}"),
            seed=seed,
            number=size,
            held_out=min(size - 1, max(DATASETS[self.dataset].classes, round(size / 5))),
            options=self.options(scale, scale.num_params[self.network]),
            test_size=scale.test_size,
        )

    def planned_runs(self, scale: Scale) -> list[PlannedRun]:
        """Return all runs of the study, and how long they take.

        Runs on several training sets differ in nothing but the set: their trials are those of the first one.
        """
        return [
            replace(run, size=size, seed=seed, key=f"{run.key}, N = {size}, seed {seed}")
            for size in self.sizes(scale)
            for seed in self.seeds(scale)
            for run in _runs_of_a_set(self, scale)
        ]

    def runs_of_a_set(self, scale: Scale) -> list[PlannedRun]:
        """Return the runs on the scale's first training set."""
        problem = self.planned_problem(scale, scale.sizes[self.dataset][0], scale.seeds[0])
        with tempfile.TemporaryDirectory() as folder:
            known = KnownRecords(Records(Path(folder)))
            strategies = make_strategies(problem.options)
            return [run for strategy in strategies for run in self._runs(scale, problem, strategy, known)]

    def _runs(self, scale: Scale, problem: Problem, strategy: Strategy, known: KnownRecords) -> list[PlannedRun]:
        plan = strategy.plan(problem, known)
        repetitions = problem.options.bo_runs if strategy.name == "map-bo" else 1
        finals = repetitions if strategy.searches else 0

        def planned(trial: Trial, key: str, repetition: int, final: bool = False) -> PlannedRun:
            by_paper = scale.name == "paper"
            return PlannedRun(
                network=self.network,
                dataset=self.dataset,
                prior=self.prior,
                method=strategy.name,
                size=problem.number,
                seed=problem.seed,
                key=key,
                trial=None if final else trial,
                runs=planned_steps(trial.settings) / max(1, trial.settings.steps),
                seconds=paper_seconds(self.network, trial) if by_paper else laptop_seconds(self.kind, trial),
                repetition=repetition,
            )

        runs = []
        for repetition in range(repetitions):
            if strategy.name == "map-bo":  # plans its runs one after the other: those that follow are like the first
                first, number = plan.trials[repetition], (plan.expected - finals) // repetitions
                runs += [planned(first, f"{first.key}, step {i}", repetition) for i in range(number)]
            else:
                runs += [planned(trial, trial.key, repetition) for trial in plan.trials]
            if finals:
                final = replace(plan.trials[0], held_out=False, clml=None)
                runs.append(planned(final, f"{strategy.name}, final {repetition}, {final.key}", repetition, final=True))
        return runs

    # ---- with data ----

    def problems(self, setup: Setup) -> list[Problem]:
        """Return the problems on the user's data.

        Raises:
            ValueError: If the data or the prior's file are missing, or cannot be used.
        """
        prior = setup.prior(self.prior)
        if prior is None:
            raise ValueError(f"the prior {self.prior} needs the posterior of a source task: see docs/ptyl.md")
        data_spec, model_spec = setup.data_spec(self.dataset), setup.model_spec(self.network, self.kind)
        num_params = 1
        if self.sweep:
            network, _ = inspect_model(model_spec, data_spec, setup.scale.test_size)
            num_params = sum(parameter.numel() for parameter in trainable(network).values())
        return make_problems(
            data_spec,
            [model_spec],
            self.options(setup.scale, num_params),
            priors=[prior],
            train_sizes=self.sizes(setup.scale),
            seeds=self.seeds(setup.scale),
            test_size=setup.scale.test_size,
            precision=setup.precision_of(self.kind),
        )

    def comparison(self, setup: Setup) -> Comparison:
        """Make the runs that are missing, and return the finished comparison.

        Raises:
            ValueError: If the data or the prior's file are missing, or cannot be used.
            FailedRunsError: If runs failed.
        """
        setup.announce(f"{self.network} ({setup.model_spec(self.network, self.kind).model}), {self.prior}, "
                       f"{DATASETS[self.dataset].title}")  # fmt: skip
        comparison = Comparison(self.problems(setup), setup.records)
        setup.records.tidy()
        if comparison.wanted():
            compare(comparison, setup.make_engine(), setup.listener)
        return comparison

    def rows(self, comparison: Comparison) -> list[Row]:
        """Return the result rows of a comparison, with the paper's names of network, dataset and prior."""
        named = {"network": self.network, "dataset": self.dataset, "paper_prior": self.prior}
        wanted = METHODS[self.network, self.prior] if self.methods is None else self.methods
        return [{**row, **named} for row in rows_of(comparison) if row["method"] in wanted]


@functools.lru_cache(maxsize=256)  # tables and figures share studies
def _runs_of_a_set(study: Study, scale: Scale) -> list[PlannedRun]:
    return study.runs_of_a_set(scale)


class EntryOfStudies(Entry):
    """A table or figure that shows the runs of several studies, its `studies`."""

    studies: list[Study]
    compares = True

    def trials(self, scale: Scale) -> list[PlannedRun]:
        """Return the runs of all studies."""
        return [run for study in self.studies for run in study.planned_runs(scale)]

    def data(self, scale: Scale) -> list[str]:
        """Return the datasets."""
        return list(dict.fromkeys(study.dataset for study in self.studies))


def make_studies(studies: Sequence[Study], setup: Setup) -> tuple[list[tuple[Study, Comparison]], list[str]]:
    """Make all studies for which the user has data and files.

    Args:
        studies: The studies that an entry shows.
        setup: What the user has.

    Returns:
        The studies with their finished comparisons, and a note for each that was left out.

    Raises:
        MissingDataError: If none could be made.
        ValueError: If data cannot be used.
    """
    made, notes = [], []
    for study in studies:
        if study.dataset not in setup.data:
            notes.append(LEFT_OUT.format(DATASETS[study.dataset].title, f"data={study.dataset}=FOLDER was not given"))
        elif setup.prior(study.prior) is None:
            notes.append(LEFT_OUT.format(f"the prior {study.prior}", "it needs the posterior of a source task"))
        else:
            made.append((study, study.comparison(setup)))
    if not made:
        needed = ", ".join(dict.fromkeys(study.dataset for study in studies))
        raise MissingDataError(
            f"no data: data=FOLDER names a folder that has {needed}, or data=NAME=FOLDER one of them"
        )
    return made, list(dict.fromkeys(notes))
