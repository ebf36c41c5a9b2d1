"""The command `deelbo prior`: the posterior of a source task, for `--prior ptyl:FILE`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

from deelbo.cli import options
from deelbo.cli.progress import RunProgress
from deelbo.errors import Interrupted
from deelbo.jobs.prior import collect_job, convert_job
from deelbo.priors import SourcePosterior


def prior(
    data: Annotated[
        str, typer.Argument(help="Data of the source task: folder of images, table of texts, or name of a dataset.")
    ] = "",
    model: options.Model = "",
    out: Annotated[Path, typer.Option(help="New file for the posterior; its name ends in .safetensors.")] = Path(
        "prior.safetensors"
    ),
    released: Annotated[
        options.Text,
        options.option("Convert the released files NAME_mean.pt, NAME_variance.pt and NAME_covmat.pt; no training."),
    ] = None,
    task: options.Task = None,
    multilabel: options.Multilabel = False,
    head: options.Head = None,
    weights: options.Weights = None,
    steps: Annotated[int, typer.Option(help="Number of steps of SGD at a constant learning rate.")] = 2000,
    burn_in: Annotated[
        int | None,
        options.option(
            "Number of steps before the first snapshot; half of all steps if not given.", panel=options.EXPERT
        ),
    ] = None,
    every: Annotated[
        int | None,
        options.option("Number of steps between snapshots; such that there are 40 if not given.", panel=options.EXPERT),
    ] = None,
    rank: Annotated[
        int,
        typer.Option(rich_help_panel=options.EXPERT, help="Number of deviations from the mean to keep, the last ones."),
    ] = 20,
    half: Annotated[
        bool,
        typer.Option(
            "--half", rich_help_panel=options.EXPERT, help="Store deviations in bfloat16, which halves the file."
        ),
    ] = False,
    learning_rate: Annotated[float, typer.Option(help="Constant learning rate of SGD.")] = 0.01,
    momentum: Annotated[float, typer.Option(rich_help_panel=options.EXPERT, help="Momentum of SGD.")] = 0.9,
    weight_decay: Annotated[float, typer.Option(rich_help_panel=options.EXPERT, help="Weight decay of SGD.")] = 0.0,
    batch_size: Annotated[int, typer.Option(help="Number of examples in a step.")] = 64,
    seed: options.Seed = 0,
    image_size: options.ImageSize = None,
    flip: options.Flip = True,
    max_length: options.MaxLength = None,
    pooling: options.Pooling = None,
    text_column: options.TextColumn = "text",
    label_column: options.LabelColumn = "label",
    data_dir: options.DataDir = None,
    skip_bad: options.SkipBad = False,
    device: options.Device = None,
    checkpoint_seconds: options.CheckpointSeconds = 60.0,
    quiet: options.Quiet = False,
) -> None:
    """Gather the posterior of a source task by SWAG, for `deelbo finetune --prior ptyl:FILE`."""
    arguments = locals()
    if not model:
        raise ValueError("--model is missing: the network that the prior is for")
    if released is not None:
        if data:
            raise ValueError("DATA and --released exclude each other")
        _show(convert_job(released, model, head, out), out, quiet)
        return
    if not data:
        raise ValueError("DATA is missing: the data of the source task (or --released NAME)")
    settings = {
        "steps": steps,
        "burn_in": burn_in,
        "every": every,
        "rank": rank,
        "learning_rate": learning_rate,
        "momentum": momentum,
        "weight_decay": weight_decay,
        "seed": seed,
        "checkpoint_seconds": checkpoint_seconds,
        "dtype": torch.bfloat16 if half else None,
    }
    with RunProgress(quiet) as progress:
        try:
            posterior, out = collect_job(
                options.data_spec(arguments),
                options.model_spec(arguments),
                settings,
                out,
                batch_size=batch_size,
                device=device,
                listener=progress,
            )
        except KeyboardInterrupt:
            again = shlex.join(["deelbo", *sys.argv[1:]])
            saved = out.with_name(out.name + ".part").exists()
            hint = f"the same command continues: {again}" if saved else "nothing was trained yet"
            raise Interrupted(f"interrupted; {hint}") from None
    _show(posterior, out, quiet)


def _show(posterior: SourcePosterior, out: Path, quiet: bool) -> None:
    if quiet:
        return
    size = sum(mean.numel() for mean in posterior.mean.values())
    spread = (sum(float(v.clamp(min=0).sum()) for v in posterior.variance.values()) / size) ** 0.5
    console = Console(soft_wrap=True, highlight=False, markup=False)
    console.print(f"{out}: {size:,} backbone weights, {posterior.rank} deviations, typical deviation {spread:.2g}")
    settings = posterior.notes["settings"]
    command = ["deelbo", "finetune", "DATA", "--model", settings["model"], "--prior", f"ptyl:{out}"]
    for name in ("head", "image_size", "max_length", "pooling"):
        command += [f"--{name.replace('_', '-')}", str(settings[name])] if settings.get(name) is not None else []
    command += ["--rank", str(posterior.rank)] if posterior.rank < 5 else []
    console.print(f"use it: {shlex.join([*command, '--out', 'RUN'])}")
