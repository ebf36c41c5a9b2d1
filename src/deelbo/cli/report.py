"""The command `deelbo report`."""

from __future__ import annotations

from typing import Annotated

from deelbo.cli import options
from deelbo.cli.progress import RunProgress
from deelbo.jobs.evaluate import Reading, evaluate_job
from deelbo.report import write_report
from deelbo.run_folder import RunFolder


def report(
    run: options.Run,
    data: Annotated[
        options.Text, options.option("Labelled data for the test results of the report; those of the run if not given.")
    ] = None,
    samples: options.Samples = 0,
    text_column: options.RunTextColumn = None,
    label_column: options.RunLabelColumn = None,
    data_dir: options.DataDir = None,
    skip_bad: options.SkipBad = False,
    quiet: options.Quiet = False,
) -> None:
    """Write RUN/report.html again, with curves, learned values, test results and single examples."""
    folder = RunFolder(run)
    if folder.read()["status"] != "finished":
        raise ValueError(f"{run} is an unfinished run; its report is written when it is finished")
    assessment = None
    if data is not None:
        with RunProgress(quiet) as progress:
            reading = Reading(data_dir, text_column, label_column, skip_bad)
            assessment = evaluate_job(run, data, samples, reading, progress)
    print(write_report(folder, assessment))
