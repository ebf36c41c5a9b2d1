"""Options that several commands share, so that they mean and say the same everywhere."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from deelbo.likelihoods import LIKELIHOODS
from deelbo.likelihoods.base import CLASS_WEIGHTS
from deelbo.models import MODEL_SOURCES
from deelbo.specs import DataSpec, ModelSpec
from deelbo.training.settings import Settings

Text = str | None


def option(help: str, *names: str) -> Any:
    """Return an option whose default, None, says nothing to a user."""
    return typer.Option(*names, help=help, show_default=False)


def numbers(name: str, text: str, kind: Any = float) -> tuple[Any, ...]:
    """Read numbers with commas between them.

    Args:
        name: Name of the argument, for the error message.
        text: What the user wrote.
        kind: `float` or `int`.

    Raises:
        ValueError: If one is not a number.
    """
    try:
        return tuple(kind(part) for part in text.split(","))
    except ValueError as error:
        raise ValueError(f"{name}={text}: write numbers with commas between them, such as 0.1,0.01") from error


def words(name: str, text: str) -> tuple[str, ...]:
    """Read words with commas between them.

    Args:
        name: Name of the argument, for the error message.
        text: What the user wrote.

    Raises:
        ValueError: If one is empty.
    """
    parts = tuple(part.strip() for part in text.split(","))
    if not all(parts):
        raise ValueError(f"{name}={text}: write words with commas between them")
    return parts


def chosen_task(task: str | None, multilabel: bool) -> str | None:
    """Return the task of `--task` and `--multilabel`.

    Raises:
        ValueError: If they contradict each other.
    """
    if multilabel and task not in (None, "multilabel"):
        raise ValueError(f"task={task} and --multilabel at once")
    return "multilabel" if multilabel else task


def data_spec(arguments: Mapping[str, Any]) -> DataSpec:
    """Return which data a command is about, from its arguments by name (`locals()` at its beginning)."""
    task = chosen_task(arguments["task"], arguments["multilabel"])
    return DataSpec(**{**_fields(DataSpec, arguments), "task": task})


def model_spec(arguments: Mapping[str, Any]) -> ModelSpec:
    """Return which model a command is about, from its arguments by name."""
    return ModelSpec(**_fields(ModelSpec, arguments))


def settings(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `Settings` among a command's arguments, without those that were not given."""
    return {name: value for name, value in _fields(Settings, arguments).items() if value is not None}


def _fields(kind: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {field.name: arguments[field.name] for field in dataclasses.fields(kind) if field.name in arguments}


_TASKS = ", ".join(LIKELIHOODS[name].task for name in LIKELIHOODS)

Run = Annotated[Path, typer.Argument(help="Folder of a finished run.")]
Data = Annotated[str, typer.Argument(help="Folder of images, table of texts, or a name such as cifar10.")]
Model = Annotated[str, typer.Option(help=f"Model to start from. {MODEL_SOURCES.help()} Or package.module:factory.")]
Task = Annotated[Text, option(f"What to predict: {_TASKS}; recognised from the labels if not given.")]
Multilabel = Annotated[bool, typer.Option("--multilabel", help="Short for --task multilabel.")]
ClassWeights = Annotated[
    str, typer.Option(help=f"{' or '.join(CLASS_WEIGHTS)}: balanced lets rare classes count as much as frequent ones.")
]
Head = Annotated[Text, option("Name of the classifier in the network; found automatically in most networks.")]
Weights = Annotated[Text, option("Local safetensors file or state dict to start from instead of pretrained weights.")]
Steps = Annotated[int | None, option("Number of steps of a full run; 6000 for images, 12000 for texts.")]
BatchSize = Annotated[int | None, option("Number of examples in a step; 128 for images, 32 for texts.")]
TestFraction = Annotated[float | None, option("Share of the data to hold out for testing, such as 0.2.")]
ImageSize = Annotated[int | None, option("Height and width of images in pixels; the network's own if not given.")]
Flip = Annotated[bool, typer.Option(help="Mirror images at random while training; not for digits or writing.")]
MaxLength = Annotated[int | None, option("Number of tokens of a text at most; what the network takes, up to 512.")]
TextColumn = Annotated[str, typer.Option(help="Name of the column that holds the text.")]
LabelColumn = Annotated[
    str, typer.Option(help="Name of the column that holds the label; several with commas between them.")
]
RunTextColumn = Annotated[Text, option("Name of the column that holds the text; as in training if not given.")]
RunLabelColumn = Annotated[Text, option("Name of the column that holds the label; as in training if not given.")]
DataDir = Annotated[Text, option("Folder where a named dataset is, or is downloaded to.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave unreadable images and incomplete rows out.")]
Device = Annotated[Text, option("Write cpu to stay off the GPU.")]
Precision = Annotated[str, typer.Option(help="Precision of the network's passes: no (float32), fp16 or bf16.")]
Seed = Annotated[int, typer.Option(help="Seed of everything random.")]
CheckpointSeconds = Annotated[float, typer.Option(help="Seconds between two checkpoints.")]
Samples = Annotated[
    int, typer.Option(help="Number of draws from the posterior to average; 0 uses the mean weights alone.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]
