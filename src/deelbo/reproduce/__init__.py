"""Reproduction of the paper's figures: `deelbo reproduce NAME`."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path

from deelbo._extras import require

FIGURES = {
    "fig-2": "RFF regression: diagEF LA-LML, diagEF LA-CLML, iso ELBO, iso DE-ELBO, true posterior",
    "fig-a1": "RFF regression against the Gaussian process it approximates",
    "fig-a2": "regression and classification with fixed and learned lengthscales, and a Gaussian process",
    "fig-a3": "RFF regression as kappa grows: 1, 6, 51.2 = D/N, 181, 1024",
}


def reproduce(name: str, out: str | Path = ".", seed: int = 0, announce: Callable[[str], None] = print) -> list[Path]:
    """Fit the models of one figure of the paper and draw it.

    Args:
        name: Name of the figure, one of `FIGURES`.
        out: Folder for the files; it is created if it does not exist.
        seed: Seed for the random features A and b.
        announce: Called with the name of each fit when it begins.

    Returns:
        The files that were written: NAME.png, NAME.svg, and NAME.json with the learned values and errors.

    Raises:
        ValueError: If there is no such figure, or the seed is out of range.
        OSError: If the folder cannot be written to, or one of the files exists already.

    Example:
        >>> from deelbo.reproduce import FIGURES
        >>> sorted(FIGURES)  # reproduce("fig-a1", out="figures") takes a few minutes
        ['fig-2', 'fig-a1', 'fig-a2', 'fig-a3']
    """
    if name not in FIGURES:
        raise ValueError(f"unknown figure {name!r}; there are {', '.join(FIGURES)}")
    with warnings.catch_warnings():  # GPyTorch uses a deprecated part of PyTorch
        warnings.simplefilter("ignore")
        for module in ("sklearn", "scipy", "gpytorch", "matplotlib"):
            require(module, "reproduce")
    if not 0 <= seed < 2**32:
        raise ValueError(f"seed={seed} must be between 0 and 2^32 - 1")
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"out={folder} is a file, not a folder")
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"{folder} cannot be written to: choose another folder")
    files = [folder / f"{name}.{ending}" for ending in ("png", "svg", "json")]
    for file in files:
        if file.exists():
            raise FileExistsError(f"{file} exists already: delete it, or choose another folder")
    from deelbo.reproduce import figures

    reproduction = getattr(figures, name.replace("fig-", "figure_"))(seed, announce)
    parts = [file.with_name(f".{file.name}.part") for file in files]  # renamed when all are complete
    try:
        with require("matplotlib", "reproduce").rc_context({"svg.hashsalt": name}):  # the same bytes every time
            reproduction.figure.savefig(parts[0], dpi=200, format="png")
            reproduction.figure.savefig(parts[1], format="svg", metadata={"Date": None})
        parts[2].write_text(
            json.dumps({"figure": name, "about": FIGURES[name], **reproduction.numbers}, indent=1) + "\n"
        )
        for part, file in zip(parts, files, strict=True):
            part.replace(file)
    finally:
        for part in parts:
            part.unlink(missing_ok=True)
    return files
