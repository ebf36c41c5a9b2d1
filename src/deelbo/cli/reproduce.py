"""The command `deelbo reproduce`: figures of the paper."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from deelbo.reproduce import FIGURES
from deelbo.reproduce import reproduce as make


def reproduce(
    name: Annotated[str, typer.Argument(help="Name of the figure; --list shows the names.")] = "",
    out: Annotated[Path, typer.Option(help="Folder for NAME.png, NAME.svg and NAME.json.")] = Path("."),
    seed: Annotated[int, typer.Option(help="Seed of the random features.")] = 0,
    show: Annotated[bool, typer.Option("--list", help="List the figures and stop.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only the names of the files.")] = False,
) -> None:
    """Fit and draw a figure of the paper."""
    if show or not name:
        for figure, about in FIGURES.items():
            print(f"{figure:8}{about}")
        if not show:
            raise ValueError("the name of the figure is missing; --list shows the names")
        return
    for file in make(name, out, seed, lambda text: None if quiet else print(f"  {text}", file=sys.stderr)):
        print(file)
