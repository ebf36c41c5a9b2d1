"""The application of all commands; each command is in a file of its own."""

from __future__ import annotations

from typing import Annotated, Any

import typer

import deelbo
from deelbo.cli.calibrate import calibrate
from deelbo.cli.compare import compare
from deelbo.cli.evaluate import evaluate
from deelbo.cli.export import export
from deelbo.cli.finetune import finetune
from deelbo.cli.predict import predict
from deelbo.cli.prior import prior
from deelbo.cli.quickstart import quickstart
from deelbo.cli.report import report
from deelbo.cli.reproduce import reproduce

app = typer.Typer(
    help="Fine-tune pretrained networks without a validation set: the regularisation is learned.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
)
for command in (quickstart, finetune, predict, evaluate, calibrate, report, export, prior, compare, reproduce):
    app.command()(command)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"deelbo {deelbo.__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; may stand anywhere in a command.")
    ] = False,
) -> None:
    """Fine-tune pretrained networks without a validation set: the regularisation is learned."""


def option_names() -> set[str]:
    """Return the names of the arguments of all commands."""
    group: Any = typer.main.get_command(app)
    return {parameter.name for command in group.commands.values() for parameter in command.params}
