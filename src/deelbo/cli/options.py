"""Options that several commands share, with the same meaning and help text in all of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from deelbo.compare.engines import ENGINES
from deelbo.likelihoods import LIKELIHOODS
from deelbo.likelihoods.base import CLASS_WEIGHTS
from deelbo.models import MODEL_SOURCES
from deelbo.optimizers import OPTIMIZERS
from deelbo.specs import DataSpec, ModelSpec
from deelbo.training.settings import Settings

Text = str | None


# Headings under which the help lists options; those of everyday use stand first, under none.
DATA, NETWORK, COMPUTING, EXPERT = "Data", "Network", "Computing", "For experts"


def option(help: str, *names: str, panel: str | None = None) -> Any:
    """Return an option that does not show its default, None, in the help."""
    return typer.Option(*names, help=help, show_default=False, rich_help_panel=panel)


def numbers(name: str, text: str, kind: Any = float) -> tuple[Any, ...]:
    """Return the numbers in a text, which are separated by commas.

    Args:
        name: Name of the argument, for the error message.
        text: Text that the user wrote.
        kind: Type of the numbers, `float` or `int`.

    Raises:
        ValueError: If a part of the text is not a number.
    """
    try:
        return tuple(kind(part) for part in text.split(","))
    except ValueError as error:
        raise ValueError(f"{name}={text}: write numbers separated by commas, such as 0.1,0.01") from error


def number(name: str, text: str, kind: Any = float) -> Any:
    """Return the one number in a text; for the arguments see `numbers`.

    Raises:
        ValueError: If the text is not a number.
    """
    try:
        return kind(text)
    except ValueError as error:
        raise ValueError(f"{name}={text}: write a number") from error


def words(name: str, text: str) -> tuple[str, ...]:
    """Return the words in a text, which are separated by commas.

    Args:
        name: Name of the argument, for the error message.
        text: Text that the user wrote.

    Raises:
        ValueError: If a word is empty.
    """
    parts = tuple(part.strip() for part in text.split(","))
    if not all(parts):
        raise ValueError(f"{name}={text}: write words separated by commas")
    return parts


def chosen_task(task: str | None, multilabel: bool) -> str | None:
    """Return the task that the options `--task` and `--multilabel` stand for.

    Raises:
        ValueError: If they contradict each other.
    """
    if multilabel and task not in (None, "multilabel"):
        raise ValueError(f"task={task} contradicts multilabel=True")
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

Run = Annotated[Path, typer.Argument(help="Folder of a finished run, as deelbo finetune wrote it.")]
Data = Annotated[str, typer.Argument(help="Folder of images, table of texts, or name of a dataset such as cifar10.")]
Model = Annotated[
    str,
    typer.Option(
        help=f"Model to start from, as SOURCE:NAME. {MODEL_SOURCES.help()} Or your own package.module:factory."
    ),
]
Task = Annotated[Text, option(f"Task: {_TASKS}; recognised from the labels if not given.", panel=DATA)]
Multilabel = Annotated[
    bool,
    typer.Option(
        "--multilabel", rich_help_panel=DATA, help="Each example has any number of labels; short for --task multilabel."
    ),
]
ClassWeights = Annotated[
    str,
    typer.Option(
        rich_help_panel=DATA,
        help=f"{' or '.join(CLASS_WEIGHTS)}; balanced lets rare classes count as much as frequent ones.",
    ),
]
Head = Annotated[
    Text,
    option("Name of the classifier in the network; found automatically in most networks if not given.", panel=NETWORK),
]
Weights = Annotated[
    Text, option("Local safetensors file or state dict to start from instead of pretrained weights.", panel=NETWORK)
]
Steps = Annotated[int | None, option("Number of training steps; 6000 for images and 12000 for texts if not given.")]
BatchSize = Annotated[int | None, option("Number of examples in a step; 128 for images and 32 for texts if not given.")]
TestFraction = Annotated[
    float | None, option("Share of the data to hold out for testing, such as 0.2; none if not given.")
]
ImageSize = Annotated[
    int | None, option("Height and width of images in pixels; those of the network if not given.", panel=NETWORK)
]
Flip = Annotated[
    bool,
    typer.Option(
        rich_help_panel=DATA, help="Mirror images at random in training; switch it off for digits and letters."
    ),
]
MaxLength = Annotated[
    int | None,
    option("Largest number of tokens of a text; as many as the network takes, up to 512, if not given.", panel=NETWORK),
]
Pooling = Annotated[
    Text,
    option(
        "How a text's tokens become one vector: mean, first, last, max, or own for transformers' classifier of the "
        "architecture; as the model was trained if not given.",
        panel=NETWORK,
    ),
]
Optimizer = Annotated[str, typer.Option(rich_help_panel=EXPERT, help=f"Optimizer of the training. {OPTIMIZERS.help()}")]
Draws = Annotated[
    int,
    typer.Option(
        rich_help_panel=EXPERT,
        help="Number of draws from the posterior in each training step, whose losses are averaged; the cost grows with "
        "it.",
    ),
]
Resize = Annotated[
    str,
    typer.Option(
        rich_help_panel=EXPERT,
        help="How images are resized before they are cropped: shorter-side keeps their shape, square squashes them, as "
        "the paper's authors do.",
    ),
]
Normalize = Annotated[
    str,
    typer.Option(
        rich_help_panel=EXPERT,
        help="Whose mean and standard deviation images get: network for the network's own, training-set for those of "
        "the training images, as in the paper.",
    ),
]
TextColumn = Annotated[str, typer.Option(rich_help_panel=DATA, help="Name of the column that holds the text.")]
LabelColumn = Annotated[
    str,
    typer.Option(
        rich_help_panel=DATA, help="Name of the column that holds the label, or several names separated by commas."
    ),
]
BatchNorm = Annotated[
    str,
    typer.Option(
        rich_help_panel=EXPERT,
        help="Statistics of batch normalisation: frozen keeps the pretrained network's, batch uses those of each batch "
        "and estimates them anew after training, running is the usual way, auto takes frozen or batch, whichever has "
        "the better features before training.",
    ),
]
HeadStart = Annotated[
    str,
    typer.Option(
        rich_help_panel=EXPERT,
        help="Where the classifier starts: zero, ridge or probe (a regression on the frozen features), or random.",
    ),
]
Dropout = Annotated[
    bool, typer.Option(rich_help_panel=EXPERT, help="Keep the network's dropout and drop-path active in training.")
]
Pairs = Annotated[
    bool | None,
    typer.Option(
        "--pairs/--no-pairs",
        rich_help_panel=EXPERT,
        help="Draw features of one class together and those of others apart, and fit the classifier afterwards; or "
        "train all weights with the classifier. If not given, pairs are for sentence encoders, up to eight classes "
        "and up to 20 texts a class.",
    ),
]
Blend = Annotated[
    float | None,
    typer.Option(
        rich_help_panel=EXPERT,
        help="How far the finished network lies on the line from the pretrained (0) to the trained weights (1); the "
        "classifier is fitted anew there. If not given, 0.5 to 0.95 for sentence encoders without pairs, as far back "
        "as training texts of one class stay together; otherwise 1.",
    ),
]
RunTextColumn = Annotated[
    Text, option("Name of the column that holds the text; the one of the training if not given.", panel=DATA)
]
RunLabelColumn = Annotated[
    Text, option("Name of the column that holds the label; the one of the training if not given.", panel=DATA)
]
DataDir = Annotated[
    Text, option("Folder where a dataset such as cifar10 is, or is downloaded to; ./data if not given.", panel=DATA)
]
SkipBad = Annotated[
    bool,
    typer.Option(
        "--skip-bad", rich_help_panel=DATA, help="Leave out unreadable images and incomplete rows instead of stopping."
    ),
]
Device = Annotated[
    Text, option("Device to compute on: cpu, or the GPU if there is one and nothing is given.", panel=COMPUTING)
]
Precision = Annotated[
    str, typer.Option(rich_help_panel=COMPUTING, help="Mixed precision of the network: no (float32), fp16 or bf16.")
]
Seed = Annotated[int, typer.Option(help="Seed of everything that is random.")]
CheckpointSeconds = Annotated[
    float,
    typer.Option(
        rich_help_panel=COMPUTING, help="Seconds between two checkpoints, from which an interrupted command continues."
    ),
]
Engine = Annotated[str, typer.Option(help=f"Where to make the runs. {ENGINES.help()}")]
Jobs = Annotated[int, typer.Option(help="Number of runs at a time with the engine local; they share the threads.")]
RayAddress = Annotated[Text, option("Address of a running Ray cluster; one is started on this machine if not given.")]
Cpus = Annotated[float, typer.Option(help="Number of cores for each run with the engine ray.")]
Gpus = Annotated[float, typer.Option(help="Number of GPUs for each run with the engine ray.")]
Samples = Annotated[
    int, typer.Option(help="Number of draws from the posterior to average; 0 uses only the mean weights.")
]
Temperature = Annotated[
    float | None,
    option("Temperature that logits are divided by, instead of the run's own; 1 switches calibration off."),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print no progress and, after training, no summary.")]
