"""`deelbo predict`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from deelbo._words import csv_text
from deelbo.cli import options
from deelbo.data.examples import Examples
from deelbo.data.folders import images_below
from deelbo.data.tables import is_table, read_rows
from deelbo.result import Result, load
from deelbo.training.checkpoint import write_text


def predict(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    inputs: Annotated[
        list[str],
        typer.Argument(help="Images and folders of them; tables of texts; - for lines of standard input."),
    ],
    samples: options.Samples = 0,
    top: Annotated[int, typer.Option(help="How many labels to name.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with the probabilities of all labels.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write to a new .csv or .json file.", show_default=False)] = None,
    text_column: options.TextColumn = "text",
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave unreadable images out.")] = False,
) -> None:
    """Name the classes of images or texts, with their probabilities."""
    if out is not None and out.suffix not in (".csv", ".json"):
        raise ValueError(f"--out {out}: the file's name must end in .csv or .json")
    if out is not None and out.exists():
        raise FileExistsError(f"{out} exists; choose a new file")
    if top < 1 or samples < 0:
        raise ValueError("--top must be at least 1, and --samples at least 0")
    if as_json and (as_csv or (out is not None and out.suffix == ".csv")):
        raise ValueError("--json and CSV at once")
    result = load(run)
    if result.source is None:
        raise ValueError("this run's network was made in Python: use deelbo.load(path, model).predict(tensors)")
    sources, columns = _gather(inputs, result.source.kind, text_column)
    if not sources:
        raise ValueError(f"no {result.source.kind} in {', '.join(inputs)}")
    rows = _rows(result, sources, columns, samples, top, skip_bad)
    if as_json or (out is not None and out.suffix == ".json"):
        text = (
            json.dumps([_nested(row, result.source.classes) for row in rows], indent=1, ensure_ascii=False, default=str)
            + "\n"
        )
    elif as_csv or out is not None:
        text = csv_text([row["columns"] for row in rows])
    else:
        text = "".join(_line(row) for row in rows)
    if out is not None:
        write_text(out, text)
    else:
        sys.stdout.write(text)


def _gather(inputs: list[str], kind: str, text_column: str) -> tuple[list[Any], list[dict[str, Any]]]:
    """Return what to predict on, and for each the columns that its row of the output begins with."""
    sources: list[Any] = []
    columns: list[dict[str, Any]] = []
    for given in inputs:
        path = Path(given)
        if given == "-":
            lines = [line.rstrip("\r\n") for line in sys.stdin if line.strip()]
            sources += lines if kind == "text" else [Path(line) for line in lines]
            columns += [{"input": line} for line in lines]
        elif not path.exists():
            hint = "; texts come from a table, or from standard input by -" if kind == "text" else ""
            raise FileNotFoundError(f"{given}: no such file{hint}")
        elif kind == "text":
            if not is_table(path):
                raise ValueError(f"{path}: a table of texts is a CSV, TSV, JSONL or Parquet file")
            for i, row in enumerate(read_rows(path, (text_column,))):
                if row.get(text_column) is None:
                    raise ValueError(f"{path}, row {i + 1}: no text")
                sources.append(str(row[text_column]))
                columns.append(row)
        else:
            files = images_below(path)[0] if path.is_dir() else [path]
            sources += files
            columns += [{"input": str(file)} for file in files]
    return sources, columns


def _rows(
    result: Result, sources: list[Any], columns: list[dict[str, Any]], samples: int, top: int, skip_bad: bool
) -> list[dict[str, Any]]:
    assert result.source is not None
    classes = result.source.classes
    numbered = Examples(sources, list(range(len(sources))), [str(source) for source in sources])
    dataset = result.source.dataset(numbered, skip_bad)  # "labels" say which of the inputs could be read
    for name in result.source.bad:
        print(f"deelbo: {name} cannot be read and is left out", file=sys.stderr)
    taken = {name for begin in columns for name in begin}
    prefix = "deelbo_" if taken & {"predicted", "probability", "probabilities"} else ""  # the table's own stay
    rows = []
    for index, row in zip(dataset.examples.labels, result.probabilities(dataset, samples), strict=True):
        begin = columns[index]
        best = row.topk(min(top, len(classes)))
        named: dict[str, Any] = {}
        for place, (p, i) in enumerate(zip(best.values.tolist(), best.indices.tolist(), strict=True)):
            suffix = "" if place == 0 else f"_{place + 1}"
            named |= {f"{prefix}predicted{suffix}": classes[i], f"{prefix}probability{suffix}": round(p, 6)}
        rows.append({"columns": {**begin, **named}, "named": named, "probabilities": row.tolist(), "prefix": prefix})
    return rows


def _nested(row: dict[str, Any], classes: list[str]) -> dict[str, Any]:
    whole = dict(zip(classes, row["probabilities"], strict=True))
    plain = {name: None if value != value else value for name, value in row["columns"].items()}  # JSON has no NaN
    return {**plain, f"{row['prefix']}probabilities": whole}


def _line(row: dict[str, Any]) -> str:
    first = next(iter(row["columns"].values()))
    guesses = [f"{value:.4f}" if isinstance(value, float) else value for value in row["named"].values()]
    return "\t".join([str(first), *guesses]) + "\n"
