"""The work of `deelbo report`: the page of a finished run again, with other test data or inputs of another kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deelbo import events
from deelbo.data.examples import Examples
from deelbo.jobs.evaluate import Reading, evaluate_job
from deelbo.jobs.predict import gather
from deelbo.loading import load
from deelbo.report import confidence_on, write_report
from deelbo.run_folder import RunFolder


def report_job(
    run: Path,
    data: str | None,
    other: str | None,
    reading: Reading,
    *,
    samples: int = 0,
    temperature: float | None = None,
    listener: events.Listener = events.ignore,
) -> Path:
    """Write the report of a finished run again, and return its path.

    Args:
        run: Folder of the run.
        data: Labelled data for the test results; those of the run if None.
        other: A folder of images, or a table of texts, of another kind than the training data; None for none.
        reading: Columns and folders by which the data are read.
        samples: Number of draws to average; 0 plugs in the mean weights.
        temperature: Temperature instead of the run's own; 1 for the network's plain outputs.
        listener: Called with the events of the job.

    Raises:
        ValueError: If the run is unfinished, the data do not fit it, or other inputs are given for another task than
            classification.
    """
    folder = RunFolder(run)
    if folder.read()["status"] != "finished":
        raise ValueError(f"{run} is an unfinished run; its report is written when it is finished")
    assessment = None
    if data is not None:
        assessment = evaluate_job(run, data, samples, reading, listener, temperature=temperature)
    elif samples or temperature is not None:
        raise ValueError("samples and temperature are for other test data: give data=DATA as well")
    facts = None
    if other is not None:
        assessment = assessment or folder.read_assessment()
        facts = _confidence(folder, other, reading, assessment, listener)
    return write_report(folder, assessment, facts)


def _confidence(
    folder: RunFolder, other: str, reading: Reading, assessment: dict[str, Any] | None, listener: events.Listener
) -> dict[str, Any]:
    """Return how confident the run is on other inputs, beside its test set and predicted in the same way."""
    result = load(folder.path)
    if (reader := result.reader) is None or result.likelihood.name != "categorical":
        raise ValueError(f"other={other!r}: only runs of deelbo finetune that classify can be looked at so")
    items, _ = gather([other], reader.kind, reading.text_column or "text", ())
    if not items:
        raise ValueError(f"other={other!r}: there is no {reader.kind} in it")
    examples = Examples(items, [0] * len(items), [str(item) for item in items])
    dataset = reader.dataset(examples, reading.skip_bad, events.stage(listener, "reading other inputs"))
    found = assessment or {}
    probabilities = result.predict_dataset(
        dataset,
        found.get("samples", 0),
        progress=events.stage(listener, "predicting other inputs"),
        temperature=found.get("temperature"),
    )
    usual = found.get("confidences")
    return {"name": Path(other).name, **confidence_on(probabilities, reader.targets.names, usual)}
