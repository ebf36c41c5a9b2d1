"""`deelbo finetune`."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from deelbo.cli import options
from deelbo.cli.progress import Interrupted, RunProgress
from deelbo.job import Job, run_job
from deelbo.result import Result


def finetune(
    data: Annotated[str, typer.Argument(help="Folder of images, table of texts, or a name such as cifar10.")],
    model: Annotated[str, typer.Option(help="timm:NAME, torchvision:NAME, hf:NAME, offline:NAME or module:factory.")],
    out: Annotated[Path, typer.Option(help="The run's folder; an unfinished run in it is resumed.")],
    head: options.Head = None,
    weights: options.Weights = None,
    method: Annotated[str, typer.Option(help="de-elbo, elbo, la-lml or map.")] = "de-elbo",
    prior: Annotated[str, typer.Option(help="l2-sp, l2-zero, per-layer or ptyl:FILE (deelbo prior).")] = "l2-sp",
    rank: Annotated[int, typer.Option(help="Of ptyl: deviations of the source task that are used.")] = 5,
    diagonal: Annotated[float, typer.Option(help="Of ptyl: added to the covariance's diagonal.")] = 0.1,
    prior_variances: Annotated[options.Text, options.option("Of map: backbone=0.1,head=1; inf for none.")] = None,
    kappa: Annotated[float | None, options.option("How much the data count; D/N if not given.")] = None,
    learning_rates: Annotated[str, typer.Option(help="Candidates.")] = "0.1,0.01,0.001,0.0001",
    lr_search: Annotated[str, typer.Option(help="race (drops candidates early) or grid (each in full).")] = "race",
    steps: options.Steps = None,
    batch_size: options.BatchSize = None,
    optimizer: Annotated[str, typer.Option(help="sgd or adamw.")] = "sgd",
    momentum: Annotated[float, typer.Option(help="Of sgd.")] = 0.9,
    clip: Annotated[float, typer.Option(help="Norm of the gradient at most; 0 for any.")] = 1.0,
    init_scale: Annotated[float, typer.Option(help="Where the posterior's scale starts.")] = 1e-4,
    samples: Annotated[int, typer.Option(help="Draws for the final estimate of the objective.")] = 10,
    refresh_batch_norm: Annotated[
        bool, typer.Option(help="Estimate batch-norm statistics anew at the weights that are judged or kept.")
    ] = True,
    train_size: Annotated[int | None, options.option("Train on a random subset, stratified by class.")] = None,
    test_fraction: options.TestFraction = None,
    seed: options.Seed = 0,
    image_size: options.ImageSize = None,
    flip: options.Flip = True,
    max_length: options.MaxLength = None,
    text_column: options.TextColumn = "text",
    label_column: options.LabelColumn = "label",
    data_dir: options.DataDir = None,
    skip_bad: options.SkipBad = False,
    device: options.Device = None,
    precision: options.Precision = "no",
    log: Annotated[options.Text, options.option("tensorboard, or another tracker of accelerate's.")] = None,
    checkpoint_seconds: options.CheckpointSeconds = 60.0,
    quiet: options.Quiet = False,
) -> None:
    """Train a classifier on DATA and write RUN: network, learned values, test results, report."""
    job = Job(
        data, model, data_dir, text_column, label_column, train_size, test_fraction, weights, head, image_size,
        flip, max_length, skip_bad,
    )  # fmt: skip
    settings = {
        "method": method,
        "prior": prior,
        "rank": rank,
        "diagonal": diagonal,
        "prior_variances": None if prior_variances is None else _variances(prior_variances),
        "kappa": kappa,
        "learning_rates": options.numbers("--learning-rates", learning_rates),
        "lr_search": lr_search,
        "steps": steps,
        "batch_size": batch_size,
        "optimizer": optimizer,
        "momentum": momentum,
        "clip": clip or None,
        "init_scale": init_scale,
        "samples": samples,
        "refresh_batch_norm": refresh_batch_norm,
        "seed": seed,
    }
    settings = {name: value for name, value in settings.items() if value is not None or name == "clip"}
    with RunProgress(quiet) as progress:
        try:
            result, metrics = run_job(
                job, settings, out, device=device, precision=precision, log=log,
                checkpoint_seconds=checkpoint_seconds, report=progress,
            )  # fmt: skip
        except KeyboardInterrupt:
            again = shlex.join(["deelbo", *sys.argv[1:]])
            saved = (out / "run.json").exists()
            hint = (
                f"the run is saved; the same command goes on with it: {again}" if saved else "nothing was trained yet"
            )
            raise Interrupted(f"interrupted; {hint}") from None
    if not quiet and os.environ.get("RANK", "0") == "0":  # of several processes, one speaks
        show(result, metrics, out)


def show(result: Result, metrics: dict[str, float] | None, out: Path) -> None:
    """Print what a run learned and where it is."""
    table = Table(show_header=False, box=None)
    for name, value in (metrics or {}).items():
        table.add_row(f"test {name.replace('_', ' ')}", f"{value:.4f}")
    table.add_row("learning rate", f"{result.learning_rate:g}")
    for name, variance in result.prior_variances.items():
        table.add_row(f"prior variance, {name}", f"{variance:.3g}")
    if result.scale is not None:
        table.add_row("posterior scale", f"{result.scale:.3g}")
    table.add_row("objective", f"{result.objective:.6g}")
    speed = result.speed
    table.add_row("examples per second", f"{speed['examples_per_second']:.1f}")
    table.add_row("time outside the network", f"{speed['outside_network']:.0%} (data {speed['data']:.1%})")
    table.add_row("report", str(out / "report.html"))
    Console(soft_wrap=True, highlight=False, markup=False).print(table)


def _variances(text: str) -> dict[str, float]:
    try:
        return {name.strip(): float(value) for name, value in (part.split("=") for part in text.split(","))}
    except ValueError as error:
        raise ValueError(f"--prior-variances {text}: write backbone=0.1,head=1") from error
