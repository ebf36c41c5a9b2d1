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
from deelbo.cli.progress import RunProgress
from deelbo.cli.wording import shown_number
from deelbo.errors import Interrupted
from deelbo.jobs.finetune import Metrics, finetune_job
from deelbo.optimizers import OPTIMIZERS
from deelbo.priors import PRIORS
from deelbo.result import Result
from deelbo.specs import DataSpec, ModelSpec
from deelbo.training.device import Execution
from deelbo.training.method import METHODS


def finetune(
    data: options.Data,
    model: options.Model,
    out: Annotated[Path, typer.Option(help="Folder of the run; an unfinished run in it is continued.")],
    task: options.Task = None,
    multilabel: options.Multilabel = False,
    class_weights: options.ClassWeights = "none",
    head: options.Head = None,
    weights: options.Weights = None,
    method: Annotated[str, typer.Option(help=f"How to regularise. {METHODS.help()}")] = "de-elbo",
    prior: Annotated[str, typer.Option(help=f"Prior over the weights. {PRIORS.help()}")] = "l2-sp",
    rank: Annotated[int, typer.Option(help="Number of deviations of the source task that the prior ptyl uses.")] = 5,
    diagonal: Annotated[float, typer.Option(help="What the prior ptyl adds to its covariance's diagonal.")] = 0.1,
    prior_variances: Annotated[
        options.Text, options.option("Fixed variances of method map, such as backbone=0.1,head=1; inf for none.")
    ] = None,
    kappa: Annotated[
        float | None,
        options.option(
            "How much the data are emphasised; if not given D/N, weights for each example (or for each number)."
        ),
    ] = None,
    learning_rates: Annotated[
        str, typer.Option(help="Candidates for the learning rate, with commas between them.")
    ] = "0.1,0.01,0.001,0.0001",
    lr_search: Annotated[
        str, typer.Option(help="race drops candidates early, grid trains each of them in full.")
    ] = "race",
    steps: options.Steps = None,
    batch_size: options.BatchSize = None,
    optimizer: Annotated[str, typer.Option(help=f"Optimizer. {OPTIMIZERS.help()}")] = "sgd",
    momentum: Annotated[float, typer.Option(help="Momentum of SGD.")] = 0.9,
    clip: Annotated[float, typer.Option(help="Largest norm of the gradient; 0 for no limit.")] = 1.0,
    init_scale: Annotated[float, typer.Option(help="Initial value of the posterior's scale.")] = 1e-4,
    samples: Annotated[int, typer.Option(help="Number of draws for the final estimate of the objective.")] = 10,
    refresh_batch_norm: Annotated[
        bool, typer.Option(help="Estimate batch-normalisation statistics anew at the weights that are judged or kept.")
    ] = True,
    train_size: Annotated[
        int | None, options.option("Number of training examples to use, a random subset by class; all if not given.")
    ] = None,
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
    log: Annotated[options.Text, options.option("Name of a tracker, such as tensorboard, for the curves.")] = None,
    checkpoint_seconds: options.CheckpointSeconds = 60.0,
    quiet: options.Quiet = False,
) -> None:
    """Train a network on DATA and write the run's folder: weights, learned values, test results, report."""
    data_spec = DataSpec(
        data=data,
        data_dir=data_dir,
        text_column=text_column,
        label_column=label_column,
        task=options.chosen_task(task, multilabel),
        train_size=train_size,
        test_fraction=test_fraction,
        flip=flip,
        skip_bad=skip_bad,
    )
    settings = {
        "method": method,
        "prior": prior,
        "rank": rank,
        "diagonal": diagonal,
        "class_weights": class_weights,
        "prior_variances": None if prior_variances is None else _variances(prior_variances),
        "kappa": kappa,
        "learning_rates": options.numbers("learning_rates", learning_rates),
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
    with RunProgress(quiet) as progress:
        try:
            result, metrics = finetune_job(
                data_spec,
                ModelSpec(model, weights, head, image_size, max_length),
                {name: value for name, value in settings.items() if value is not None or name == "clip"},
                out,
                execution=Execution(device, precision, log, checkpoint_seconds),
                listener=progress,
            )
        except KeyboardInterrupt:
            again = shlex.join(["deelbo", *sys.argv[1:]])
            saved = (out / "run.json").exists()
            hint = f"the run is saved; the same command continues it: {again}" if saved else "nothing was trained yet"
            raise Interrupted(f"interrupted; {hint}") from None
    if not quiet and os.environ.get("RANK", "0") == "0":  # of several processes, one speaks
        _show(result, metrics, out)


def _show(result: Result, metrics: Metrics | None, out: Path) -> None:
    """Print what a run learned and where it is."""
    table = Table(show_header=False, box=None)
    for name, value in (metrics or {}).items():
        table.add_row(f"test {name.replace('_', ' ')}", shown_number(value))
    table.add_row("learning rate", f"{result.learning_rate:g}")
    for name, variance in result.prior_variances.items():
        table.add_row(f"prior variance, {name}", f"{variance:.3g}")
    for name, title in {**result.likelihood.learned_titles, **_titles(result)}.items():
        table.add_row(title, f"{result.learned[name]:.3g}")
    table.add_row("objective", f"{result.objective:.6g}")
    speed = result.speed
    table.add_row("examples per second", f"{speed['examples_per_second']:.1f}")
    table.add_row("time outside the network", f"{speed['outside_network']:.0%} (data {speed['data']:.1%})")
    table.add_row("report", str(out / "report.html"))
    Console(soft_wrap=True, highlight=False, markup=False).print(table)


def _titles(result: Result) -> dict[str, str]:
    """Names of what the method learned beside the prior variances."""
    quantities = METHODS[result.settings.method].quantities
    return {quantity.column: quantity.title for quantity in quantities if quantity.charted}


def _variances(text: str) -> dict[str, float]:
    try:
        return {name.strip(): float(value) for name, value in (part.split("=") for part in text.split(","))}
    except ValueError as error:
        raise ValueError(f"--prior-variances {text}: write backbone=0.1,head=1") from error
