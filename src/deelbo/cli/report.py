"""The command `deelbo report`."""

from __future__ import annotations

from typing import Annotated

from deelbo.cli import options
from deelbo.cli.progress import RunProgress
from deelbo.jobs.evaluate import Reading
from deelbo.jobs.report import report_job


def report(
    run: options.Run,
    data: Annotated[
        options.Text, options.option("Labelled data for the test results of the report; those of the run if not given.")
    ] = None,
    other: Annotated[
        options.Text,
        options.option("Inputs of another kind, without labels: how confident is the network there? (classification)"),
    ] = None,
    samples: options.Samples = 0,
    temperature: options.Temperature = None,
    text_column: options.RunTextColumn = None,
    label_column: options.RunLabelColumn = None,
    data_dir: options.DataDir = None,
    skip_bad: options.SkipBad = False,
    quiet: options.Quiet = False,
) -> None:
    """Write RUN/report.html again, with curves, learned values, test results and single examples."""
    with RunProgress(quiet) as progress:
        reading = Reading(data_dir, text_column, label_column, skip_bad)
        print(report_job(run, data, other, reading, samples=samples, temperature=temperature, listener=progress))
