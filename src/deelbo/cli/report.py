"""`deelbo report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deelbo.cli.evaluate import assessment
from deelbo.cli.progress import RunProgress
from deelbo.report import write_report
from deelbo.result import load, read_run


def report(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    data: Annotated[str | None, typer.Option(help="Test on these labelled data first.", show_default=False)] = None,
    samples: Annotated[int, typer.Option(help="Average this many draws from the posterior; 0 for the means.")] = 0,
    text_column: Annotated[str, typer.Option(help="Of a table.")] = "text",
    label_column: Annotated[str, typer.Option(help="Of a table.")] = "label",
    data_dir: Annotated[str | None, typer.Option(help="Where a named dataset is.", show_default=False)] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave unreadable images and empty rows out.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """Write RUN/report.html anew: curves, learned values, calibration, examples."""
    if read_run(run)["status"] != "finished":
        raise ValueError(f"{run} is an unfinished run; its report comes when it is finished")
    found = None
    if data is not None:
        with RunProgress(quiet) as progress:
            found = assessment(load(run), data, samples, progress, text_column, label_column, data_dir, skip_bad)
    print(write_report(run, found))
