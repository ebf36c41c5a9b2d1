"""Reproduction of the paper's tables and figures: `deelbo reproduce NAME`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deelbo.reproduce.contents import CONTENTS, find
from deelbo.reproduce.entry import ENTRIES, Entry
from deelbo.reproduce.scales import DATASETS, LAPTOP, PAPER, SCALES, Scale
from deelbo.reproduce.setup import Setup, find_data
from deelbo.reproduce.writing import check_folder, made, write_entry

__all__ = ["CONTENTS", "ENTRIES", "LAPTOP", "PAPER", "SCALES", "Scale", "Setup", "find", "find_data", "reproduce"]


def reproduce(name: str, setup: Setup) -> list[Path]:
    """Make a table or figure of the paper; an interrupted one is continued, and runs of others are used again.

    Args:
        name: Name of the entry, one of `ENTRIES`.
        setup: Scale, data, machine and folder of the results.

    Returns:
        The files of the entry: NAME.md and NAME.json, and NAME.png and NAME.svg of a figure.

    Raises:
        ValueError: If there is no such entry, or data that it needs are missing.
        FileExistsError: If it was made in this folder with other data or settings.
        OSError: If the folder cannot be written to.
        FailedRunsError: If training runs failed.

    Example:
        >>> from pathlib import Path
        >>> from deelbo.reproduce import ENTRIES, Setup, reproduce
        >>> ENTRIES["fig-a1"].title  # reproduce("fig-a1", Setup(Path("figures"))) takes half a minute
        'RFF regression against the Gaussian process it approximates'
    """
    entry = ENTRIES[name]
    check_folder(setup.out)
    wanted = made_with(entry, setup)
    if (found := made(name, setup.out)) is not None:
        if found.get("made_with") != wanted:
            raise FileExistsError(
                f"{setup.out / name}.json was made with other data or settings: choose another folder, or delete it"
            )
        setup.announce(f"{name} was made before: delete {setup.out / name}.json to make it again")
        return [path for end in ("png", "svg", "md", "json") if (path := setup.out / f"{name}.{end}").is_file()]
    setup.announce(f"{name}: {entry.title}")
    reproduction = entry.make(setup)
    place = next((place for place in CONTENTS if place.name == name), None)
    assert place is not None, f"{name} is not in the contents"
    return write_entry(place, entry.title, reproduction, wanted, setup.out)


def made_with(entry: Entry, setup: Setup) -> dict[str, Any]:
    """Return what decides the content of an entry, as plain values: paths are left out, since data may move."""
    scale = setup.scale
    used = [name for name in entry.data(scale) if name in setup.data]
    kinds = {run.dataset: run for run in entry.trials(scale)}
    precision = {kind: setup.precision_of(kind) for kind in {DATASETS[name].kind for name in used if entry.compares}}
    return {
        "scale": scale.name,
        "data": sorted(set(used)),
        "steps": {kind: values["steps"] for kind, values in scale.settings.items()} if kinds else {},
        "seeds": list(scale.seeds) if kinds else [setup.seed],
        "models": dict(setup.models),
        "precision": {kind: value for kind, value in sorted(precision.items()) if value != "no"},
        "source posteriors": sorted(setup.source_posteriors),
    }
