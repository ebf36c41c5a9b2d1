"""`deelbo evaluate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from deelbo.cli import options
from deelbo.cli.progress import RunProgress
from deelbo.data import load_labelled
from deelbo.job import stage
from deelbo.report import assess
from deelbo.result import load, read_run


def evaluate(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    data: Annotated[str, typer.Argument(help="Labelled data, as for finetune; its test part if it has one.")],
    samples: options.Samples = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    text_column: options.TextColumn = "text",
    label_column: options.LabelColumn = "label",
    data_dir: options.DataDir = None,
    skip_bad: options.SkipBad = False,
    quiet: options.Quiet = False,
) -> None:
    """Print accuracy, balanced accuracy, NLL and ECE of RUN on DATA."""
    with RunProgress(quiet) as progress:
        metrics = assessment(run, data, samples, progress, text_column, label_column, data_dir, skip_bad)["metrics"]
    if as_json:
        print(json.dumps(metrics))
    else:
        for name, value in metrics.items():
            print(f"{name.replace('_', ' '):18} {value:.4f}")


def _trained_on(run: Path, data: str) -> bool:
    about = read_run(run).get("about", {})
    same = Path(data).exists() and Path(data).resolve() == Path(about.get("data", "")).resolve()
    return same and not (Path(data) / "test").is_dir() and not list(Path(data).glob("test.*"))


def assessment(
    run: Path,
    data: str,
    samples: int,
    progress: RunProgress,
    text_column: str = "text",
    label_column: str = "label",
    data_dir: str | None = None,
    skip_bad: bool = False,
) -> dict:
    """Test a run on labelled data."""
    result = load(run)
    if result.source is None:
        raise ValueError("this run's network was made in Python: evaluate it there, by result.evaluate(dataset)")
    if _trained_on(run, data):
        progress({"note": f"{data} has no test part: examples that the run was trained on are among these"})
    source = result.source
    examples = load_labelled(data, source.kind, source.classes, data_dir, text_column, label_column, skip_bad)
    dataset = source.dataset(examples, skip_bad, stage(progress, "reading"))
    if source.bad:
        progress({"note": f"{len(source.bad)} unreadable images were left out, such as {source.bad[0]}"})
    return assess(result, dataset, samples, stage(progress, "testing"))
