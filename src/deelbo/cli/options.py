"""Options that several commands share, so that they mean and say the same everywhere."""

from __future__ import annotations

from typing import Annotated, Any

import typer

Text = str | None


def option(help: str, *names: str) -> Any:
    """Return an option whose default, None, says nothing to a user."""
    return typer.Option(*names, help=help, show_default=False)


def numbers(name: str, text: str, kind: Any = float) -> tuple[Any, ...]:
    """Read numbers with commas between them.

    Raises:
        ValueError: If one is none; the message names the option.
    """
    try:
        return tuple(kind(part) for part in text.split(","))
    except ValueError as error:
        raise ValueError(f"{name} {text}: numbers with commas between them, such as 0.1,0.01") from error


Head = Annotated[Text, option("Name of the classifier in the network; found by itself in most.")]
Weights = Annotated[Text, option("Local safetensors file or state dict instead of the pretrained weights.")]
Steps = Annotated[int | None, option("Of a full run; 6000 for images, 12000 for texts.")]
BatchSize = Annotated[int | None, option("128 for images, 32 for texts.")]
TestFraction = Annotated[float | None, option("Hold a share of the data out for testing.")]
ImageSize = Annotated[int | None, option("Pixels; the network's own if not given.")]
Flip = Annotated[bool, typer.Option(help="Mirror images at random; not for digits or text.")]
MaxLength = Annotated[int | None, option("Tokens; what the network takes, at most 512, if not given.")]
TextColumn = Annotated[str, typer.Option(help="Of a table.")]
LabelColumn = Annotated[str, typer.Option(help="Of a table.")]
DataDir = Annotated[Text, option("Where a named dataset is, or is downloaded to.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave unreadable images and empty rows out.")]
Device = Annotated[Text, option("cpu to stay off the GPU.")]
Precision = Annotated[str, typer.Option(help="no, fp16 or bf16 autocast.")]
Seed = Annotated[int, typer.Option(help="Of everything random.")]
CheckpointSeconds = Annotated[float, typer.Option(help="Seconds between checkpoints.")]
Samples = Annotated[int, typer.Option(help="Average this many draws from the posterior; 0 for the means.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress.")]
