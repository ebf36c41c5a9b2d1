"""The command `deelbo quickstart`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from deelbo._extras import require
from deelbo._wording import duration, some_of
from deelbo.cli import options
from deelbo.cli.progress import RunProgress
from deelbo.data import stratified_subset
from deelbo.errors import Interrupted
from deelbo.events import Note
from deelbo.jobs.finetune import finetune_job
from deelbo.loading import load
from deelbo.result import Result
from deelbo.run_folder import RunFolder
from deelbo.specs import DataSpec, ModelSpec
from deelbo.training.device import Execution

TRAIN, TEST = 100, 500  # numbers of images
INTRODUCTIONS = {"elbo": "first the textbook objective, to compare with", "de-elbo": "now deelbo's own objective"}
SETTINGS = {"steps": 120, "batch_size": 32}


def quickstart(
    out: Annotated[Path, typer.Option(help="New folder for the data and both runs.")] = Path("deelbo-quickstart"),
    quiet: options.Quiet = False,
) -> None:
    """Try deelbo in a few minutes, offline: 100 handwritten digits, a network pretrained on ImageNet.

    ELBO and DE-ELBO learn the strength of the regularisation on the same 100 images, without a validation set.
    """
    start = time.monotonic()
    if out.is_dir() and (others := {path.name for path in out.glob("[!.]*")} - {"digits", "elbo", "de-elbo"}):
        raise FileExistsError(f"{out} holds something else ({some_of(sorted(others))}); choose a new folder")
    data = write_digits(out / "digits")
    rows = {}
    for method in ("elbo", "de-elbo"):
        folder = RunFolder(out / method)
        if folder.status == "finished":
            rows[method] = load(folder.path), folder.read()["metrics"]
            continue
        with RunProgress(quiet, title=f"{method}: ") as progress:
            progress(Note(INTRODUCTIONS[method]))
            try:
                rows[method] = finetune_job(
                    DataSpec(str(data), flip=False),
                    ModelSpec("offline:efficientnet_lite0", image_size=64),
                    {**SETTINGS, "method": method},
                    folder.path,
                    execution=Execution(device="cpu"),
                    listener=progress,
                )
            except KeyboardInterrupt:
                raise Interrupted("interrupted; the same command continues") from None
    _show(rows, out, time.monotonic() - start)


def write_digits(folder: Path, train_size: int = TRAIN, test_size: int = TEST) -> Path:
    """Write some of scikit-learn's 1,797 handwritten digits as a folder of images, and return the folder.

    Args:
        folder: Folder for the images.
        train_size: Number of training images.
        test_size: Number of test images.

    Raises:
        FileExistsError: If the folder has other images.
    """
    datasets, Image = require("sklearn.datasets", "offline"), require("PIL.Image", "vision")
    images, labels = datasets.load_digits(return_X_y=True)
    chosen = stratified_subset(labels.tolist(), train_size + test_size, seed=0)
    train = {chosen[i] for i in stratified_subset([int(labels[i]) for i in chosen], train_size, seed=0)}
    paths = {i: folder / ("train" if i in train else "test") / str(labels[i]) / f"{i:04}.png" for i in chosen}
    if others := sorted(str(path) for path in set(folder.glob("*/*/[!.]*")) - set(paths.values())):
        raise FileExistsError(f"{folder} holds other images ({some_of(others)}); choose a new folder")
    for i, path in paths.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            Image.fromarray((255 - images[i].reshape(8, 8) * 255 / 16).astype("uint8")).save(path)
    return folder


def _show(rows: dict[str, tuple[Result, Any]], out: Path, seconds: float) -> None:
    table = Table(title="100 training images, 10 classes, no validation set")
    for name in ("method", "κ", "test accuracy", "test NLL", "λ", "τ", "σ", "rate"):
        table.add_column(name, justify="left" if name == "method" else "right")
    for method, (result, metrics) in rows.items():
        variances = result.prior_variances
        table.add_row(
            method,
            f"{result.learned['kappa']:,.0f}",
            f"{metrics['accuracy']:.1%}",
            f"{metrics['nll']:.2f}",
            f"{variances['backbone']:.1e}",
            f"{variances['head']:.1e}",
            f"{result.scale:.1e}",
            f"{result.learning_rate:g}",
        )
    console = Console(soft_wrap=True, highlight=False, markup=False)
    console.print(table)
    console.print(
        f"From the same {TRAIN} images, without a validation set: the textbook objective (elbo) reaches "
        f"{rows['elbo'][1]['accuracy']:.0%}, deelbo's (de-elbo) {rows['de-elbo'][1]['accuracy']:.0%}. "
        "λ and τ are the strengths of the regularisation that were learned on the way (prior variances of backbone and "
        "classifier), σ is the learned noise of the weights, κ how much the images count."
    )
    console.print(f"Look at {out / 'de-elbo' / 'report.html'}. That took {duration(seconds)}.")
    console.print(
        "Your own photographs, sorted into one folder for each class, such as photos/cat/1.jpg:\n"
        "  source .venv/bin/activate   # where `make quickstart` has installed the command\n"
        "  deelbo finetune photos --model offline:efficientnet_lite0 --image-size 128 --steps 200 --batch-size 32 "
        "--test-fraction 0.2 --out my-run"
    )
