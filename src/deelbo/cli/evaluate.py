"""The command `deelbo evaluate`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from deelbo.cli import options
from deelbo.cli.progress import RunProgress
from deelbo.cli.wording import shown_number
from deelbo.jobs.evaluate import Reading, evaluate_job
from deelbo.metrics import metrics_of
from deelbo.run_folder import RunFolder


def evaluate(
    run: options.Run,
    data: Annotated[
        str, typer.Argument(help="Labelled data as for deelbo finetune; their test part is used if they have one.")
    ],
    samples: options.Samples = 0,
    temperature: options.Temperature = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the metrics as JSON.")] = False,
    text_column: options.RunTextColumn = None,
    label_column: options.RunLabelColumn = None,
    data_dir: options.DataDir = None,
    skip_bad: options.SkipBad = False,
    quiet: options.Quiet = False,
) -> None:
    """Print how good the predictions of RUN are on DATA."""
    with RunProgress(quiet) as progress:
        reading = Reading(data_dir, text_column, label_column, skip_bad)
        metrics = evaluate_job(run, data, samples, reading, progress, temperature=temperature)["metrics"]
    known = metrics_of(RunFolder(run).read()["settings"]["likelihood"])
    if as_json:
        print(json.dumps(metrics))
    else:
        for name, value in metrics.items():
            print(f"{known[name].title:33} {shown_number(value)}")
