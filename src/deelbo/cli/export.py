"""The command `deelbo export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deelbo.cli import options
from deelbo.cli.progress import RunProgress
from deelbo.loading import load


def export(
    run: options.Run,
    folder: Annotated[Path, typer.Argument(help="New folder for the network.")],
    temperature: options.Temperature = None,
) -> None:
    """Write the plain network of RUN into FOLDER, for use without deelbo.

    A Hugging Face model is written by its save_pretrained, any other as a safetensors state dict with model.json. Its
    logits are calibrated, and outputs of a regression are in the units of the training targets.
    """
    with RunProgress():
        load(run).export(folder, temperature=temperature)
    print(folder)
