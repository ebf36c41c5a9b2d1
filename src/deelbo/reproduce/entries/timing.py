"""Tab. 2: the average time of one run and of a whole search, MAP with grid search, LA-LML and DE-ELBO."""

from __future__ import annotations

from typing import Any

from deelbo._wording import counted, duration
from deelbo.compare import Comparison
from deelbo.reproduce.entry import ENTRIES, Claim, Entry, Reproduction, judge
from deelbo.reproduce.panels import markdown_table
from deelbo.reproduce.plan import PlannedRun
from deelbo.reproduce.published import TIMING
from deelbo.reproduce.scales import TITLES, Scale
from deelbo.reproduce.setup import Setup
from deelbo.reproduce.study import Study, make_studies

METHODS = {"L2-SP": ("map-grid", "la-lml", "de-elbo"), "PTYL": ("map-grid", "de-elbo")}
# LA-LML of one run against DE-ELBO of one run in the paper, 70 against 33 minutes.
TWICE = 2.0


def times_of(comparison: Comparison, methods: tuple[str, ...]) -> dict[str, dict[str, float]]:
    """Return, for each method, the mean seconds of a full run, those of a search, and its number of full runs.

    A race over learning rates is one run of more than a full one; its time is divided by what it is worth. The final
    run of a grid search is left out, as in the paper.
    """
    found: dict[str, dict[str, list[float]]] = {}
    for entry in comparison.entries:
        strategy, plan = entry.strategy, entry.plan()
        if strategy.name not in methods or not entry.finished():
            continue
        tried = [trial for trial in plan.trials if not strategy.searches or trial not in plan.finals]
        records = [record for trial in tried if (record := comparison.known(trial)) is not None]
        seconds, runs = sum(strategy.seconds(r) for r in records), sum(r["runs"] for r in records)
        of = found.setdefault(strategy.name, {"run": [], "search": [], "runs": []})
        for name, value in (("run", seconds / runs), ("search", seconds), ("runs", runs)):
            of[name].append(value)
    return {method: {name: sum(v) / len(v) for name, v in of.items()} for method, of in found.items()}


class Timing(Entry):
    """Times of single runs and of searches, on the largest training set of CIFAR-10."""

    title = "average time of one run and of the whole search"
    compares = True

    def _studies(self) -> list[Study]:
        return [
            Study("ResNet-50", "cifar10", prior, methods=methods, largest=True, training_sets=1)
            for prior, methods in METHODS.items()
        ]

    def trials(self, scale: Scale) -> list[PlannedRun]:
        """Return the runs of all methods on one training set."""
        return [run for study in self._studies() for run in study.planned_runs(scale)]

    def data(self, scale: Scale) -> list[str]:
        """Return CIFAR-10."""
        return ["cifar10"]

    def make(self, setup: Setup) -> Reproduction:
        """Make all runs and sum up their times."""
        made, notes = make_studies(self._studies(), setup)
        times = {study.prior: times_of(comparison, METHODS[study.prior]) for study, comparison in made}
        notes.append(f"Measured with {counted(setup.jobs, 'run')} at a time; tests are not counted")
        return Reproduction({"seconds": times}, None, self._table(times), self._claims(times), notes)

    def _table(self, times: dict[str, dict[str, dict[str, float]]]) -> str:
        rows = []
        for prior, of in times.items():
            for method, found in of.items():
                minutes, hours = TIMING[prior, method]
                ours = [duration(found["run"]), duration(found["search"])]
                rows.append([TITLES[method], prior, f"{found['runs']:.3g}", *ours, f"{minutes:g} min", f"{hours:g} h"])
        head = ["method", "prior", "full runs", "average run", "whole search", "the paper's run", "the paper's search"]
        return markdown_table(head, rows)

    def _claims(self, times: dict[str, Any]) -> list[Claim]:
        of = times["L2-SP"] if "L2-SP" in times else next(iter(times.values()))
        ours, grid = of["de-elbo"], of["map-grid"]
        claims = [
            judge(
                "One run of DE-ELBO costs about as much as one of MAP",
                [ours["run"] < 1.25 * grid["run"]],
                f"{duration(ours['run'])} against {duration(grid['run'])}",
            ),
            judge(
                "DE-ELBO avoids the cost of grid search",
                [ours["search"] < grid["search"] / 4],
                f"{duration(ours['search'])} against {duration(grid['search'])}, {grid['search'] / ours['search']:.0f} "
                f"times as much for {grid['runs']:.0f} runs",
            ),
        ]
        if "la-lml" in of:
            ratio = of["la-lml"]["run"] / ours["run"]
            text = f"One run of DE-ELBO is {TWICE:g} times faster than one of LA-LML"
            claims.append(judge(text, [ratio >= TWICE], f"{ratio:.1f} times"))
        return claims


ENTRIES.register("tab-2", "time of one run and of a search")(Timing())
