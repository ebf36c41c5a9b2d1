"""The files of an entry: NAME.png and NAME.svg of a figure, NAME.md, and NAME.json, which is written last."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from deelbo._extras import require
from deelbo._files import read_json, write_json, write_text
from deelbo.reproduce.contents import Place
from deelbo.reproduce.entry import Reproduction


def made(name: str, out: Path) -> dict[str, Any] | None:
    """Return what NAME.json says, if the entry is finished in this folder."""
    path = out / f"{name}.json"
    return read_json(path) if path.is_file() else None


def check_folder(out: Path) -> None:
    """Make the folder of the results if it does not exist.

    Raises:
        OSError: If it is a file, or cannot be written to.
    """
    if out.exists() and not out.is_dir():
        raise NotADirectoryError(f"out={out} is a file, not a folder")
    out.mkdir(parents=True, exist_ok=True)
    if not os.access(out, os.W_OK):
        raise PermissionError(f"{out} cannot be written to: choose another folder")


def write_entry(
    place: Place, title: str, reproduction: Reproduction, made_with: Mapping[str, Any], out: Path
) -> list[Path]:
    """Write the files of an entry; each appears in one instant, the JSON file last.

    Args:
        place: Name and place of the entry in the paper.
        title: What it shows.
        reproduction: The table or figure with its numbers.
        made_with: Scale, data and models that it was made with; the entry is made again only with the same.
        out: Folder of the results.

    Returns:
        The files that were written.
    """
    files = []
    if reproduction.figure is not None:
        files += _write_figure(place.name, reproduction.figure, out)
    files.append(out / f"{place.name}.md")
    write_text(files[-1], _markdown(place, title, reproduction, made_with))
    files.append(out / f"{place.name}.json")
    about = {"name": place.name, "number": place.number, "label": place.label, "about": title}
    claims = [asdict(claim) for claim in reproduction.claims]
    content = {**about, "made_with": dict(made_with), "claims": claims, "notes": reproduction.notes}
    write_json(files[-1], json.loads(json.dumps({**content, **reproduction.numbers})))
    return files


def _write_figure(name: str, figure: Any, out: Path) -> list[Path]:
    files = [out / f"{name}.{ending}" for ending in ("png", "svg")]
    parts = [file.with_name(f".{file.name}.part") for file in files]
    try:
        with require("matplotlib", "reproduce").rc_context({"svg.hashsalt": name}):  # the same bytes every time
            figure.savefig(parts[0], dpi=200, format="png")
            figure.savefig(parts[1], format="svg", metadata={"Date": None})
        for part, file in zip(parts, files, strict=True):
            part.replace(file)
    finally:
        for part in parts:
            part.unlink(missing_ok=True)
    return files


def _markdown(place: Place, title: str, reproduction: Reproduction, made_with: Mapping[str, Any]) -> str:
    number = f"{place.number} of the paper (`{place.label}`)" if place.number else "Beyond the paper"
    with_what = "; ".join(f"{name} {_words(value)}" for name, value in made_with.items() if value)
    parts = [f"# {place.name}: {title}", f"{number}. Made with {with_what}."]
    if reproduction.figure is not None:
        parts.append(f"![{title}]({place.name}.png)")
    if reproduction.table:
        parts.append(reproduction.table.strip())
    if reproduction.claims:
        rows = [f"| {claim.text} | **{claim.verdict}** | {claim.evidence} |" for claim in reproduction.claims]
        title = "the paper's claim" if place.number else "claim"
        parts.append("\n".join([f"| {title} | here | evidence |", "| --- | --- | --- |", *rows]))
    parts += [f"- {note}" for note in reproduction.notes]
    return "\n\n".join(parts) + "\n"


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_words(of)}" for name, of in value.items())
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
