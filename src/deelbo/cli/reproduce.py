"""The command `deelbo reproduce`: tables and figures of the paper."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from deelbo.cli import options
from deelbo.cli.progress import ComparisonProgress
from deelbo.errors import Interrupted
from deelbo.reproduce import ENTRIES, SCALES, Scale, Setup, find, find_data
from deelbo.reproduce import reproduce as make
from deelbo.reproduce.listing import list_text, time_text
from deelbo.reproduce.plan import available, plan_text
from deelbo.reproduce.setup import MissingDataError
from deelbo.training.device import check_precision

KINDS = ("image", "text")


def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(help="Names of tables and figures, such as fig-3 or tab-2; or all.")
    ] = None,
    scale: Annotated[
        str, typer.Option(help="laptop: small networks and grids, minutes to hours; paper: exactly the paper's.")
    ] = "laptop",
    data: Annotated[
        options.Text,
        options.option(
            "Folder that has the folders cifar10, flowers102, pets and agnews, or some of them; or NAME=FOLDER, "
            "several separated by commas. At the scale paper, where datasets are found by name, or downloaded to."
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder for NAME.png, NAME.svg, NAME.md and NAME.json, and for the runs.")
    ] = Path("reproduced"),
    show: Annotated[
        bool, typer.Option("--list", help="List all tables and figures, what each needs and whether it was made.")
    ] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print which training runs are needed and how long they take, and stop.")
    ] = False,
    steps: options.Steps = None,
    seeds: Annotated[options.Text, options.option("Seeds of the training sets; 1001,2001,3001 if not given.")] = None,
    image_model: Annotated[
        options.Text, options.option("Model for images, instead of the scale's.", panel=options.NETWORK)
    ] = None,
    text_model: Annotated[
        options.Text, options.option("Model for texts, instead of the scale's.", panel=options.NETWORK)
    ] = None,
    ptyl: Annotated[
        options.Text, options.option("File of the prior PTYL for the model for images.", panel=options.NETWORK)
    ] = None,
    ptyl_ssl: Annotated[
        options.Text, options.option("The same from self-supervised learning, PTYL (SSL).", panel=options.NETWORK)
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random features of Case Study A.")] = 0,
    engine: options.Engine = "local",
    jobs: options.Jobs = 2,
    ray_address: options.RayAddress = None,
    cpus: options.Cpus = 1,
    gpus: options.Gpus = 0,
    device: options.Device = None,
    precision: Annotated[
        str,
        typer.Option(
            help="Mixed precision of the runs: no (float32), fp16 or bf16; image=... or text=... for one kind of "
            "inputs, several separated by commas.",
            rich_help_panel=options.COMPUTING,
        ),
    ] = "no",
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only the names of the files.")] = False,
) -> None:
    """Make tables and figures of the paper; finished runs are never repeated, and shared between them."""
    if scale not in SCALES:
        raise ValueError(f"scale={scale!r}, but it is one of {', '.join(SCALES)}")
    the_scale = _changed(SCALES[scale], steps, seeds)
    folders, data_dir = ({}, None) if data is None else find_data(data, the_scale)
    files = {name: file for name, file in {"PTYL": ptyl, "PTYL (SSL)": ptyl_ssl}.items() if file is not None}
    if show:
        print(list_text(out, folders or None, files))
        return
    if not names:
        raise ValueError("the name of a table or figure is missing; --list shows the names")
    chosen = list(dict.fromkeys(entry for name in names for entry in find(name)))
    if plan:
        runs = [run for name in chosen for run in ENTRIES[name].trials(the_scale)]
        if the_scale.name == "laptop":
            keys = {run.key for run in available(runs, folders or None, files)}
            runs = [run for run in runs if run.key in keys]  # with those that two methods share, in both their lines
        print(plan_text(runs, the_scale))
        return
    models = {"image": image_model, "text": text_model}
    with ComparisonProgress(quiet) as progress:
        setup = Setup(
            out=out,
            scale=the_scale,
            data=folders,
            data_dir=data_dir,
            models={kind: model for kind, model in models.items() if model is not None},
            precision=_precision(precision),
            source_posteriors=files,
            seed=seed,
            engine=engine,
            jobs=jobs,
            ray_address=ray_address,
            cpus=cpus,
            gpus=gpus,
            device=device,
            announce=lambda text: progress.console.print(f"  {text}"),
            listener=progress,
        )
        if len(chosen) > 1:
            total = time_text(chosen, the_scale, folders, files)
            progress.console.print(f"{len(chosen)} entries: {total}, from the beginning")
        _make_all(chosen, setup)


def _changed(scale: Scale, steps: int | None, seeds: str | None) -> Scale:
    """Return a scale with other numbers of steps or other training sets."""
    changes: dict[str, Any] = {}
    if steps is not None:
        changes["settings"] = {kind: {**values, "steps": steps} for kind, values in scale.settings.items()}
    if seeds is not None:
        changes["seeds"] = options.numbers("seeds", seeds, int)
    return replace(scale, **changes) if changes else scale


def _precision(given: str) -> dict[str, str]:
    """Return the precision by the kind of the inputs, from "bf16" or "image=no,text=bf16".

    Raises:
        ValueError: If a kind or a precision is unknown.
    """
    named = dict(part.partition("=")[::2] for part in given.split(",")) if "=" in given else dict.fromkeys(KINDS, given)
    for kind, precision in named.items():
        if kind not in KINDS:
            raise ValueError(f"precision={given}, but the kinds of inputs are {' and '.join(KINDS)}")
        check_precision(precision)
    return named


def _make_all(names: list[str], setup: Setup) -> None:
    """Make entries one after the other; of several, those without data are skipped and named in the end."""
    skipped = []
    for name in names:
        try:
            files = make(name, setup)
        except MissingDataError:
            if len(names) == 1:
                raise
            skipped.append(name)
        except KeyboardInterrupt:
            again = shlex.join(["deelbo", *sys.argv[1:]])
            raise Interrupted(f"interrupted; finished runs are kept, and the same command continues: {again}") from None
        else:
            for file in files:
                print(file)
    if skipped:
        raise ValueError(
            f"no data for {', '.join(skipped)}: data=FOLDER names a folder that has them; --list says which"
        )
