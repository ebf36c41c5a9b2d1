"""The command `deelbo predict`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from deelbo._files import write_text
from deelbo._wording import csv_text
from deelbo.cli import options
from deelbo.events import Event, Note
from deelbo.jobs.predict import PredictedInput, predict_job


def predict(
    run: options.Run,
    inputs: Annotated[
        list[str],
        typer.Argument(help="Images, folders of images, or tables of texts; - for the lines of standard input."),
    ],
    samples: options.Samples = 0,
    temperature: options.Temperature = None,
    alpha: Annotated[
        float | None,
        options.option(
            "Add prediction sets (intervals for numbers) that leave out the truth about so often, such as 0.1; after "
            "deelbo calibrate with folds or held-out data."
        ),
    ] = None,
    top: Annotated[
        int, typer.Option(help="Number of most probable classes to print for each input (classification).")
    ] = 1,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, with the probabilities of all classes or labels.")
    ] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV; the columns of an input table are kept.")] = False,
    out: Annotated[Path | None, options.option("Write to a new .csv or .json file instead of printing.")] = None,
    text_column: options.TextColumn = "text",
    skip_bad: options.SkipBad = False,
) -> None:
    """Predict classes with their probabilities, several labels, or numbers with their standard deviations."""
    if out is not None and out.suffix not in (".csv", ".json"):
        raise ValueError(f"out={out}: the file's name must end in .csv or .json")
    if out is not None and out.exists():
        raise FileExistsError(f"{out} exists; choose a new file")
    if as_json and (as_csv or (out is not None and out.suffix == ".csv")):
        raise ValueError("the options --json and --csv (or a .csv file) contradict each other")
    rows = predict_job(
        run,
        inputs,
        samples=samples,
        temperature=temperature,
        alpha=alpha,
        top=top,
        text_column=text_column,
        skip_bad=skip_bad,
        lines=sys.stdin if "-" in inputs else (),
        listener=_say,
    )
    if as_json or (out is not None and out.suffix == ".json"):
        text = json.dumps([_nested(row) for row in rows], indent=1, ensure_ascii=False, default=str) + "\n"
    elif as_csv or out is not None:
        text = csv_text([{**row.input_columns, **row.columns} for row in rows])
    else:
        text = "".join(_line(row) for row in rows)
    if out is not None:
        write_text(out, text)
    else:
        sys.stdout.write(text)


def _say(event: Event) -> None:
    if isinstance(event, Note):
        print(f"deelbo: {event.text}", file=sys.stderr)


def _nested(row: PredictedInput) -> dict[str, Any]:
    plain = {name: None if value != value else value for name, value in row.input_columns.items()}  # JSON has no NaN
    return {**plain, **row.columns, **row.details}


def _line(row: PredictedInput) -> str:
    first = next(iter(row.input_columns.values()))
    return "\t".join([str(first), *row.shown]) + "\n"
