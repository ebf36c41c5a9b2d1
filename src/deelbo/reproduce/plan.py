"""Which training runs an entry needs: counted by method, with their hours; no data are read for it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from deelbo._wording import counted
from deelbo.compare import Trial
from deelbo.reproduce.scales import DATASETS, TITLES, Scale


@dataclass(frozen=True)
class PlannedRun:
    """A training run that is needed.

    Args:
        network: Name of the network in the paper.
        dataset: Name of the dataset.
        prior: Name of the prior in the paper.
        method: Name of the method.
        size: N, the size of the training set.
        seed: Seed of the training set.
        key: What makes it the same run as one of another entry.
        trial: The run; None for a final run, which trains the best cell of a search on the whole training set.
        runs: Number of full runs that it is worth: a race over learning rates is a single run of more than one.
        seconds: How long it takes; None if that is not known.
        repetition: Number of the repetition of the search.
    """

    network: str
    dataset: str
    prior: str
    method: str
    size: int
    seed: int
    key: str
    trial: Trial | None
    runs: float
    seconds: float | None
    repetition: int = 0

    @property
    def final(self) -> bool:
        """Whether it is a final run."""
        return self.trial is None


@dataclass(frozen=True)
class PlanLine:
    """The runs of one method with one network and prior.

    Args:
        network: Name of the network in the paper.
        prior: Name of the prior in the paper.
        method: Name of the method.
        cells: Datasets with their training sizes.
        searches: Number of searches: training sets times repetitions.
        search_runs: Number of full runs of one search, without its final run.
        final_runs: Number of final runs of one search, 0 or 1.
        hours: Hours of all its runs; None if the time of some is not known.
    """

    network: str
    prior: str
    method: str
    cells: str
    searches: int
    search_runs: float
    final_runs: int
    hours: float | None

    @property
    def total(self) -> float:
        """Number of full runs in all."""
        return self.searches * (self.search_runs + self.final_runs)


def plan_lines(runs: Iterable[PlannedRun]) -> list[PlanLine]:
    """Return a line for each network, prior and method; a run that two methods share counts for both."""
    groups: dict[tuple[str, str, str], dict[str, PlannedRun]] = {}
    for run in runs:
        groups.setdefault((run.network, run.prior, run.method), {})[run.key] = run
    return [_line(list(group.values())) for group in groups.values()]


def _line(runs: list[PlannedRun]) -> PlanLine:
    places = {(run.dataset, run.size, run.seed, run.repetition) for run in runs}
    search = sum(run.runs for run in runs if not run.final) / len(places)
    final = sum(run.final for run in runs) // len(places)
    sizes: dict[str, list[int]] = {}
    for run in runs:
        if run.size not in sizes.setdefault(run.dataset, []):
            sizes[run.dataset].append(run.size)
    cells = "; ".join(f"{DATASETS[name].title} {', '.join(map(str, of))}" for name, of in sizes.items())
    first = runs[0]
    return PlanLine(first.network, first.prior, first.method, cells, len(places), search, final, hours(runs))


def hours(runs: Iterable[PlannedRun]) -> float | None:
    """Return the hours of some runs, one after the other, each counted once; None if one's time is not known."""
    seconds = {run.key: run.seconds for run in runs}
    if any(value is None for value in seconds.values()):
        return None
    return sum(value or 0.0 for value in seconds.values()) / 3600


def distinct(runs: Iterable[PlannedRun]) -> list[PlannedRun]:
    """Return the runs without those that are there already."""
    return list({run.key: run for run in runs}.values())


def available(
    runs: Iterable[PlannedRun], data: Collection[str] | None, priors: Collection[str] | None
) -> list[PlannedRun]:
    """Return the runs, each once, for which a user has data and files.

    Args:
        runs: The runs.
        data: Names of the datasets that the user has; all if None.
        priors: Names of the priors PTYL that the user has files for; all if None.
    """
    return [
        run
        for run in distinct(runs)
        if (data is None or run.dataset in data)
        and (priors is None or run.prior in priors or not run.prior.startswith("PTYL"))
    ]


def plan_text(runs: Sequence[PlannedRun], scale: Scale) -> str:
    """Return the plan of some entries in Markdown: runs by method, hours, and the settings that all runs share."""
    head = "| network | prior | method | data, N | searches | full runs of one search | runs | hours |"
    lines = [head, "| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for line in plan_lines(runs):
        one = f"{line.search_runs:.3g}" + (f" + {line.final_runs}" if line.final_runs else "")
        time = "not in the paper" if line.hours is None else f"{line.hours:,.1f}"
        cells = [line.network, line.prior, TITLES.get(line.method, line.method), line.cells, f"{line.searches}", one]
        lines.append("| " + " | ".join([*cells, f"{line.total:,.0f}", time]) + " |")
    once = distinct(runs)
    known = [run for run in once if run.seconds is not None]
    total = (hours(known) or 0.0) / scale.jobs
    text = f"{counted(len(once), 'run')}, each counted once: about {total:,.1f} hours on {scale.machine}"
    if len(known) < len(once):
        text += f", without {counted(len(once) - len(known), 'run')} whose time the paper does not tell"
    kinds = dict.fromkeys(DATASETS[run.dataset].kind for run in once)
    shared = [f"- {kind}s: " + _words({**scale.settings[kind], **scale.options[kind]}) for kind in kinds]
    models = [f"- {name}: {scale.models[name].model}" for name in dict.fromkeys(run.network for run in once)]
    if any(run.method == "la-clml" for run in once):
        text += ". MAP + GS and LA-CLML use the same runs, and where the paper has both, both are made"
    return "\n".join([*lines, "", f"{text}.", "", *shared, f"- training sets: seeds {_words(scale.seeds)}", *models])


def _words(values: object) -> str:
    if isinstance(values, dict):
        return ", ".join(f"{name} {_words(value)}" for name, value in values.items())
    if isinstance(values, tuple):
        return "/".join(f"{value:g}" for value in values)
    return str(values)
