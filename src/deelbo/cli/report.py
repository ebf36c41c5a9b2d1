"""`deelbo report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deelbo.cli import options
from deelbo.cli.evaluate import assessment
from deelbo.cli.progress import RunProgress
from deelbo.report import write_report
from deelbo.result import read_run


def report(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    data: Annotated[str | None, typer.Option(help="Test on these labelled data first.", show_default=False)] = None,
    samples: options.Samples = 0,
    text_column: options.TextColumn = "text",
    label_column: options.LabelColumn = "label",
    data_dir: options.DataDir = None,
    skip_bad: options.SkipBad = False,
    quiet: options.Quiet = False,
) -> None:
    """Write RUN/report.html anew: curves, learned values, calibration, examples."""
    if read_run(run)["status"] != "finished":
        raise ValueError(f"{run} is an unfinished run; its report comes when it is finished")
    found = None
    if data is not None:
        with RunProgress(quiet) as progress:
            found = assessment(run, data, samples, progress, text_column, label_column, data_dir, skip_bad)
    print(write_report(run, found))
