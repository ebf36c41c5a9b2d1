"""The command `deelbo finetune`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from time import monotonic
from typing import Annotated

import typer

from deelbo._processes import is_first, launched_together
from deelbo._wording import counted, duration
from deelbo.cli import options
from deelbo.cli.progress import RunProgress
from deelbo.cli.wording import print_rows, shown_number
from deelbo.errors import Interrupted
from deelbo.jobs.finetune import Metrics, finetune_job
from deelbo.metrics import metrics_of
from deelbo.posteriors import POSTERIORS
from deelbo.priors import PRIORS
from deelbo.result import Result
from deelbo.training.device import Execution
from deelbo.training.method import METHODS
from deelbo.training.settings import LEARNING_RATES


def finetune(
    data: options.Data,
    model: options.Model,
    out: Annotated[Path, typer.Option(help="Folder of the run; an unfinished run in it is continued.")],
    task: options.Task = None,
    multilabel: options.Multilabel = False,
    class_weights: options.ClassWeights = "none",
    head: options.Head = None,
    weights: options.Weights = None,
    method: Annotated[
        str, typer.Option(rich_help_panel=options.EXPERT, help=f"Method of regularisation. {METHODS.help()}")
    ] = "de-elbo",
    prior: Annotated[
        str, typer.Option(rich_help_panel=options.EXPERT, help=f"Prior over the weights. {PRIORS.help()}")
    ] = "l2-sp",
    rank: Annotated[
        int,
        typer.Option(
            rich_help_panel=options.EXPERT, help="Number of deviations of the source task that the prior ptyl uses."
        ),
    ] = 5,
    diagonal: Annotated[
        float,
        typer.Option(
            rich_help_panel=options.EXPERT, help="Number that the prior ptyl adds to the diagonal of its covariance."
        ),
    ] = 0.1,
    prior_variances: Annotated[
        options.Text,
        options.option(
            "Fixed prior variances for method map, such as backbone=0.1,head=1; inf for no penalty.",
            panel=options.EXPERT,
        ),
    ] = None,
    kappa: Annotated[
        float | None,
        options.option(
            "Emphasis of the data in de-elbo; weights divided by examples (D/N), at least 1, if not given.",
            panel=options.EXPERT,
        ),
    ] = None,
    learning_rates: Annotated[
        str, typer.Option(help="Candidates for the learning rate, separated by commas.")
    ] = ",".join(map(str, LEARNING_RATES)),
    lr_search: Annotated[
        options.Text,
        options.option(
            "How to choose the learning rate: race drops candidates early, grid trains all in full; if not given, grid "
            "for la-lml and race for the other methods.",
            panel=options.EXPERT,
        ),
    ] = None,
    steps: options.Steps = None,
    time: Annotated[
        options.Text,
        options.option(
            "Time for the whole command, such as 90s, 10m or 1h30m, instead of --steps: as many steps are taken as fit "
            "into it, up to the number without it."
        ),
    ] = None,
    batch_size: options.BatchSize = None,
    optimizer: options.Optimizer = "sgd",
    momentum: Annotated[
        float, typer.Option(rich_help_panel=options.EXPERT, help="Momentum of the optimizer sgd.")
    ] = 0.9,
    clip: Annotated[
        float,
        typer.Option(
            rich_help_panel=options.EXPERT, help="Largest norm of the gradient, which is clipped at it; 0 for no limit."
        ),
    ] = 1.0,
    posterior: Annotated[
        str, typer.Option(rich_help_panel=options.EXPERT, help=f"Posterior over the weights. {POSTERIORS.help()}")
    ] = "isotropic",
    draws: options.Draws = 1,
    init_scale: Annotated[
        float, typer.Option(rich_help_panel=options.EXPERT, help="Initial value of the posterior's scale.")
    ] = 1e-4,
    samples: Annotated[
        int,
        typer.Option(
            rich_help_panel=options.EXPERT,
            help="Number of draws from the posterior for the final estimate of the objective.",
        ),
    ] = 10,
    scale_update: Annotated[
        str,
        typer.Option(
            rich_help_panel=options.EXPERT,
            help="How the posterior's scale is learned: closed-form, or gradient as in the paper.",
        ),
    ] = "closed-form",
    batch_norm: options.BatchNorm = "auto",
    head_start: options.HeadStart = "zero",
    dropout: options.Dropout = True,
    pairs: options.Pairs = None,
    blend: options.Blend = None,
    calibrate: Annotated[
        str,
        typer.Option(
            help="How certain predictions are made: free finds a temperature on the training set; folds=5 trains five "
            "more networks on parts of it, for a better one and for prediction sets; none leaves logits as they are."
        ),
    ] = "free",
    train_size: Annotated[
        int | None, options.option("Number of training examples to use, a random subset; all if not given.")
    ] = None,
    per_class: Annotated[
        int | None, options.option("Number of training examples of each class to use, instead of --train-size.")
    ] = None,
    test_fraction: options.TestFraction = None,
    seed: options.Seed = 0,
    image_size: options.ImageSize = None,
    flip: options.Flip = True,
    max_length: options.MaxLength = None,
    pooling: options.Pooling = None,
    resize: options.Resize = "shorter-side",
    normalize: options.Normalize = "network",
    text_column: options.TextColumn = "text",
    label_column: options.LabelColumn = "label",
    data_dir: options.DataDir = None,
    skip_bad: options.SkipBad = False,
    device: options.Device = None,
    precision: options.Precision = "no",
    log: Annotated[
        options.Text, options.option("Name of a tracker for the curves, such as tensorboard.", panel=options.EXPERT)
    ] = None,
    checkpoint_seconds: options.CheckpointSeconds = 60.0,
    workers: Annotated[
        int | None,
        options.option(
            "Number of processes that read training examples, 0 for none; if not given, some are started when training "
            "steps wait for their data.",
            panel=options.COMPUTING,
        ),
    ] = None,
    quiet: options.Quiet = False,
) -> None:
    """Train a network on DATA and write weights, learned values, test results and a report into the folder OUT."""
    arguments, began = locals(), monotonic()
    settings = {
        **options.settings(arguments),
        "learning_rates": options.numbers("learning_rates", learning_rates),
        "clip": clip or None,
    }
    if prior_variances is not None:
        settings["prior_variances"] = _variances(prior_variances)
    with RunProgress(quiet) as progress:
        try:
            result, metrics = finetune_job(
                options.data_spec(arguments),
                options.model_spec(arguments),
                settings,
                out,
                execution=Execution(device, precision, log, checkpoint_seconds, workers),
                calibrate=calibrate,
                time=time,
                listener=progress,
            )
        except KeyboardInterrupt:
            again = "" if launched_together() else ": " + shlex.join(["deelbo", *sys.argv[1:]])  # without the launcher
            saved = (out / "run.json").exists()
            hint = f"the run is saved; the same command continues it{again}" if saved else "nothing was trained yet"
            raise Interrupted(f"interrupted; {hint}") from None
    if not quiet and is_first():  # only one of several processes prints
        _show(result, metrics, out, monotonic() - began)


def _show(result: Result, metrics: Metrics | None, out: Path, seconds: float) -> None:
    """Print test results, learned values and speed of a run, the time it took, and the path of its report in full."""
    titles = {name: metric.title for name, metric in metrics_of(result.likelihood.name).items()}
    rows = [(f"test {titles[name]}", shown_number(value)) for name, value in (metrics or {}).items()]
    if result.calibration.source != "none":
        rows.append(("temperature", result.calibration.describe()))
    if METHODS[result.settings.method].trains:
        rows += _of_training(result)
    given = (result.plan or {}).get("time")
    rows.append(("time of this command", duration(seconds) + (f" ({given} were given)" if given else "")))
    rows.append(("report", str(out / "report.html")))
    print_rows(rows)


def _of_training(result: Result) -> list[tuple[str, str]]:
    rows = [("learning rate", f"{result.learning_rate:g}")]
    rows += [(f"prior variance, {name}", f"{variance:.3g}") for name, variance in result.prior_variances.items()]
    if result.blend != 1:
        rows.append(("blend", f"{result.blend:.0%} of the way from the pretrained to the trained weights"))
    for name, title in {**result.likelihood.learned_titles, **_titles(result)}.items():
        rows.append((title, f"{result.learned[name]:.3g}"))
    speed = result.speed
    return [
        *rows,
        ("objective per example", f"{result.objective / result.objective_scale:.4f} (larger is better)"),
        ("examples per second", f"{speed['examples_per_second']:.1f}"),
        ("time outside the network", f"{speed['outside_network']:.0%} of a step"),
        ("waiting for data", f"{speed['data']:.1%} of a step" + _workers(speed.get("workers", 0))),
    ]


def _workers(number: float) -> str:
    return f", with {counted(int(number), 'worker process')}" if number else ""


def _titles(result: Result) -> dict[str, str]:
    """Return the titles of what the method learned beside the prior variances, by name."""
    quantities = METHODS[result.settings.method].quantities
    return {quantity.column: quantity.title for quantity in quantities if quantity.charted}


def _variances(text: str) -> dict[str, float]:
    try:
        return {name.strip(): float(value) for name, value in (part.split("=") for part in text.split(","))}
    except ValueError as error:
        raise ValueError(
            f"prior_variances={text!r}: write GROUP=NUMBER, separated by commas, such as backbone=0.1"
        ) from error
