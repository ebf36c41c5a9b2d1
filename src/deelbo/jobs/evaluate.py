"""The work of `deelbo evaluate`: testing a finished run on other labelled data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deelbo import events
from deelbo._wording import counted
from deelbo.data import Examples, load_labelled, split
from deelbo.loading import load
from deelbo.report import assess
from deelbo.run_folder import RunFolder
from deelbo.specs import DataSpec, spec_of_run


@dataclass(frozen=True)
class Reading:
    """How labelled data are read; None stands for the value that the run was trained with.

    Args:
        data_dir: Folder where a named dataset is, or is downloaded to.
        text_column: Name of the column that holds the text.
        label_column: Name of the column that holds the label, or several names separated by commas.
        skip_bad: Whether to leave unreadable images and incomplete rows out instead of refusing them.
    """

    data_dir: str | None = None
    text_column: str | None = None
    label_column: str | None = None
    skip_bad: bool = False


def evaluate_job(
    run: Path,
    data: str,
    samples: int,
    reading: Reading,
    listener: events.Listener = events.ignore,
    *,
    temperature: float | None = None,
) -> dict[str, Any]:
    """Return the assessment of a finished run on labelled data.

    Args:
        run: Folder of the run.
        data: A folder of images, a table of texts, or a name; its test part if it has one.
        samples: Number of draws to average; 0 plugs in the mean weights.
        reading: Columns and folders by which the data are read.
        listener: Called with the events of the job.
        temperature: Temperature instead of the run's own; 1 for the network's plain outputs.

    Raises:
        ValueError: If the run is unfinished, or the data do not fit it.
    """
    result, about = load(run), RunFolder(run).read().get("about", {})
    reader = result.reader
    if reader is None:
        raise ValueError("this run's network was made in Python: evaluate it there, by result.evaluate(dataset)")
    columns = {
        "text_column": reading.text_column or about.get("text_column", "text"),
        "label_column": reading.label_column or about.get("label_column", "label"),
    }
    same = same_data(about, data)
    held_out = _held_out(about, data, result.settings.seed, reading) if same else None
    if held_out is not None:
        listener(events.Note(f"the part of {data} that the run held out for testing is used"))
        examples = held_out
    else:
        options = {"data_dir": reading.data_dir, "skip_bad": reading.skip_bad, **columns}
        examples = load_labelled(data, reader.kind, reader.targets, **options)
    trained_on = held_out is None and same
    if trained_on:
        listener(events.Note(f"{data} has no test part: examples that the run was trained on are among these"))
    dataset = reader.dataset(examples, reading.skip_bad, events.stage(listener, "reading"))
    if reader.bad:
        listener(events.Note(f"{counted(len(reader.bad), 'unreadable image')} left out, such as {reader.bad[0]}"))
    assessment = assess(result, dataset, samples, events.stage(listener, "testing"), temperature)
    return {**assessment, "trained_on": trained_on}


def same_data(about: dict[str, Any], data: str) -> bool:
    """Tell whether a run was trained on these data, and they have no test part of their own."""
    same = Path(data).exists() and Path(data).resolve() == Path(about.get("data", "")).resolve()
    return same and not (Path(data) / "test").is_dir() and not list(Path(data).glob("test.*"))


def _held_out(about: dict[str, Any], data: str, seed: int, reading: Reading) -> Examples | None:
    """Return the examples that a run with `test_fraction` held out, if its training examples are found again."""
    others = (reading.text_column, about.get("text_column")), (reading.label_column, about.get("label_column"))
    if about.get("test_fraction") is None or any(wanted not in (None, trained) for wanted, trained in others):
        return None
    spec = replace(spec_of_run(DataSpec, about), data=data)  # bad rows as in training
    parts = split(spec.read(), spec.train_size, spec.test_fraction, seed, spec.per_class)
    return parts.test if parts.fingerprint() == about.get("fingerprint") else None
