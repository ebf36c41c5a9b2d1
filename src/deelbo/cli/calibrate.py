"""The command `deelbo calibrate`."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated

import typer

from deelbo.cli import options
from deelbo.cli.progress import RunProgress
from deelbo.cli.wording import print_rows, shown_number
from deelbo.errors import Interrupted
from deelbo.jobs.calibrate import Source, calibrate_job
from deelbo.metrics import metrics_of
from deelbo.run_folder import RunFolder


def calibrate(
    run: options.Run,
    folds: Annotated[
        int | None,
        options.option("Train so many networks on parts of the training set: a better temperature, prediction sets."),
    ] = None,
    fold_steps: Annotated[
        int | None, options.option("Number of training steps of each of them; as many as the run had if not given.")
    ] = None,
    held_out: Annotated[
        options.Text, options.option("Labelled data that the run was not trained on, to calibrate by instead.")
    ] = None,
    training_set: Annotated[
        bool,
        typer.Option(
            "--training-set", help="Calibrate by the training set alone, also in place of folds or held-out data."
        ),
    ] = False,
    data: Annotated[
        options.Text, options.option("The data that the run was trained on, if they have moved.", panel=options.DATA)
    ] = None,
    device: options.Device = None,
    quiet: options.Quiet = False,
) -> None:
    """Find the temperature at which the probabilities of RUN are right, and store it in RUN.

    By the training set alone; by folds of it, which takes a training run for each; or by held-out data. Predictions,
    the report and exports use it.
    """
    with RunProgress(quiet) as progress:
        try:
            calibration, assessment = calibrate_job(
                run, Source(folds, fold_steps, held_out, training_set), data, device=device, listener=progress
            )
        except KeyboardInterrupt:
            again = shlex.join(["deelbo", *sys.argv[1:]])
            raise Interrupted(f"interrupted; finished folds are kept, and the same command goes on: {again}") from None
    rows = [("temperature", calibration.describe())]
    known = metrics_of(RunFolder(run).read()["settings"]["likelihood"])
    titles = {name: metric.title for name, metric in known.items()}
    if calibration.unseen:
        rows += [(f"{titles[n]}, unseen examples", shown_number(v)) for n, v in calibration.unseen.items()]
    if assessment is not None:
        plain = assessment.get("uncalibrated", assessment)["metrics"]
        for name, value in assessment["metrics"].items():
            before = "" if plain[name] == value else f" (uncalibrated {shown_number(plain[name])})"
            rows.append((f"test {titles[name]}", shown_number(value) + before))
    if not quiet:
        print_rows(rows)
