"""The list of all tables and figures: what each needs at either scale, how long it takes, and whether it was made."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from deelbo._wording import counted, duration
from deelbo.reproduce.contents import CONTENTS
from deelbo.reproduce.entry import ENTRIES, Entry
from deelbo.reproduce.plan import PlannedRun, available, hours
from deelbo.reproduce.scales import DATASETS, SCALES, Scale
from deelbo.reproduce.writing import made


def list_text(out: Path, data: Collection[str] | None = None, priors: Collection[str] = ()) -> str:
    """Return a few lines for each entry, and the time of all together.

    Args:
        out: Folder of the results, in which an entry is looked for that was made.
        data: Names of the datasets that the laptop's times are for; all if None.
        priors: Names of the priors PTYL that the laptop's times are for.
    """
    names = [place.name for place in CONTENTS]
    runs = {(name, scale): ENTRIES[name].trials(scale) for name in names for scale in SCALES.values()}
    of_user = {scale: (data, priors) if scale.name == "laptop" else (None, None) for scale in SCALES.values()}
    lines = []
    for place in CONTENTS:
        entry = ENTRIES[place.name]
        where = f"{place.number}, {place.label}" if place.number else "beyond the paper"
        lines.append(f"{place.name:14} {entry.title} ({where})")
        for scale, (datasets, files) in of_user.items():
            planned = runs[place.name, scale]
            time = _time([entry], available(planned, datasets, files), scale)
            lines.append(f"  {scale.name}: {needs_text(entry, scale, planned)}; {time}")
        found = made(place.name, out)
        done = "no" if found is None else f"yes, at the scale {found['made_with']['scale']}: {out / place.name}.md"
        lines.append(f"  made here: {done}")
    lines.append("all            all of these; runs that they share are made once")
    for scale, (datasets, files) in of_user.items():
        planned = [run for name in names for run in runs[name, scale]]
        time = _time([ENTRIES[name] for name in names], available(planned, datasets, files), scale)
        lines.append(f"  {scale.name}: {time}")
    return "\n".join(lines)


def needs_text(entry: Entry, scale: Scale, runs: Sequence[PlannedRun] | None = None) -> str:
    """Return the data and the weights that an entry needs.

    Args:
        entry: The entry.
        scale: The scale.
        runs: Its runs at this scale, if they are known already.
    """
    runs = entry.trials(scale) if runs is None else runs
    data = ", ".join(f"{DATASETS[name].title}" for name in dict.fromkeys(entry.data(scale)))
    specs = [run.trial.model_spec.model for run in runs if run.trial is not None]
    files = sorted({f"a file for {run.prior}" for run in runs if run.prior.startswith("PTYL")})
    weights = ", ".join([*dict.fromkeys([*specs, *entry.models(scale)]), *files])
    return f"{data or 'no data'}; {weights or 'no weights'}"


def time_text(
    names: Iterable[str], scale: Scale, data: Collection[str] | None = None, priors: Collection[str] | None = None
) -> str:
    """Return how many runs some entries need together, and how long that takes, in words.

    Args:
        names: Names of entries.
        scale: The scale.
        data: Names of the datasets that the user has; all if None.
        priors: Names of the priors PTYL that the user has files for; all if None.
    """
    entries = [ENTRIES[name] for name in names]
    return _time(entries, available([run for entry in entries for run in entry.trials(scale)], data, priors), scale)


def _time(entries: Sequence[Entry], runs: Sequence[PlannedRun], scale: Scale) -> str:
    seconds = seconds_of(entries, runs, scale)
    unknown = sum(run.seconds is None for run in runs)
    known = f"about {duration(seconds)} on {scale.machine}" if seconds or not unknown else ""
    more = f"{unknown:,} runs whose time the paper does not tell" if unknown else ""
    number = counted(round(sum(run.runs for run in runs)), "full run") if runs else ""
    return ", ".join(part for part in (number, known, more) if part)


def seconds_of(entries: Iterable[Entry], runs: Iterable[PlannedRun], scale: Scale) -> float:
    """Return the seconds of some runs, as many at a time as the scale has jobs, and of the work beside them."""
    trained = (hours(run for run in runs if run.seconds is not None) or 0.0) * 3600
    return trained / scale.jobs + 60 * sum(entry.minutes(scale) for entry in entries)
