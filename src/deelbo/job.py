"""From data and the name of a model to a finished run with its test results and its report."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from deelbo._extras import require
from deelbo.data import Data, load_data, split
from deelbo.data.images import ImageSet
from deelbo.data.texts import TextSet
from deelbo.finetuning import finetune
from deelbo.models import LoadedModel, load_model
from deelbo.report import assess, write_report
from deelbo.result import Result, load, read_run
from deelbo.run_folder import check_folder, check_space, run_differences
from deelbo.training.checkpoint import write_json
from deelbo.training.settings import Settings

# The paper's, by kind of data.
LENGTHS = {"image": {"steps": 6000, "batch_size": 128}, "text": {"steps": 12000, "batch_size": 32}}

Report = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Job:
    """What a run is about: the arguments of `load_data`, `split`, `load_model` and `training_sets`."""

    data: str
    model: str
    data_dir: str | None = None
    text_column: str = "text"
    label_column: str = "label"
    train_size: int | None = None
    test_fraction: float | None = None
    weights: str | None = None
    head: str | None = None
    image_size: int | None = None
    flip: bool = True
    max_length: int | None = None
    skip_bad: bool = False


def run_job(
    job: Job,
    settings: dict[str, Any],
    out: Path,
    *,
    device: str | None = None,
    precision: str = "no",
    log: str | None = None,
    checkpoint_seconds: float = 60.0,
    report: Report = lambda event: None,
) -> tuple[Result, dict[str, float] | None]:
    """Train, test and write the report; an unfinished run is resumed, a finished one is only completed.

    Args:
        job: What the run is about.
        settings: Fields of `Settings`; the length of the training is the paper's for the kind of data, unless given.
        out: The run's folder.
        device: See `finetune`; likewise the others.
        precision: See `finetune`.
        log: See `finetune`.
        checkpoint_seconds: See `finetune`.
        report: Called with {"note": text}, {"stage": name, "done": n, "total": n} and the events of `Search`.

    Returns:
        The run, and its metrics on the test set, if there is one (and in one process only).

    Raises:
        ValueError: If the data, the model, the settings or the folder are not what they should be.
        OSError: Likewise.
    """
    check_place(Path(job.data), out)
    if (out / "report.html").is_file() and (out / "run.json").is_file():
        raise FileExistsError(f"{out} holds a finished run; choose a new folder")
    data, settings = _read(job, settings, report)
    chosen = Settings(**settings)
    about = {**asdict(job), "fingerprint": data.fingerprint(), "classes": data.classes}
    if (out / "run.json").is_file() and read_run(out)["status"] == "finished":
        return _complete(data, chosen, about, out, report)
    resumed = check_folder(out, chosen, about)
    loaded = load_for(job, data, chosen.seed)
    if not resumed:
        check_space(out, loaded.network.state_dict(), chosen)
    train_set, plain_set = loaded.training_sets(
        data.train, job.skip_bad, stage(report, "reading training images"), job.flip
    )
    test_set = _test_set(loaded, data, job.skip_bad, report)  # before training: an unreadable image is told now
    if resumed:
        report({"note": f"resuming the unfinished run in {out}"})
    report({"data": data, "model": loaded, "settings": chosen})
    result = finetune(
        loaded.network,
        train_set,
        job.head,
        plain_train_set=plain_set,
        out=out,
        device=device,
        precision=precision,
        log=log,
        checkpoint_seconds=checkpoint_seconds,
        report=report,
        source=loaded,
        about=about,
        **settings,
    )
    if not require("accelerate", "training").PartialState().is_main_process:
        return result, None
    return result, _finish(result, test_set, data, out, report)


def load_for(job: Job, data: Data, seed: int) -> LoadedModel:
    """Return the network of a job for the classes of its data, at its initial state."""
    torch.default_generator.manual_seed(seed)  # of the new classifier's weights
    sizes = {"image_size": job.image_size, "max_length": job.max_length}
    return load_model(job.model, data.kind, data.classes, weights=job.weights, **sizes)  # type: ignore[arg-type]


def check_place(data: Path, out: Path) -> None:
    """Refuse a run among the images: it would be a class, or part of one, next time."""
    classes = [data / part for part in ("train", "test")] if (data / "train").is_dir() else [data]
    if data.is_dir() and any(out.resolve().is_relative_to(folder.resolve()) for folder in classes):
        raise ValueError(f"--out {out} is among the data in {data}; choose a folder outside")


def _read(job: Job, settings: dict[str, Any], report: Report) -> tuple[Data, dict[str, Any]]:
    """Return the job's examples, and the settings with the length of training that suits them."""
    columns = {"text_column": job.text_column, "label_column": job.label_column}
    data = load_data(job.data, data_dir=job.data_dir, skip_bad=job.skip_bad, **columns)
    for note in data.notes:
        report({"note": note})
    settings = {**LENGTHS[data.kind], **settings}
    return split(data, job.train_size, job.test_fraction, Settings(**settings).seed), settings


def _complete(
    data: Data, settings: Settings, about: dict[str, Any], out: Path, report: Report
) -> tuple[Result, dict[str, float] | None]:
    """Test a run that was killed after its training."""
    if differences := run_differences(read_run(out), settings, about):
        raise ValueError(f"{out} holds a finished run with other settings: " + "; ".join(differences))
    report({"note": f"{out} is trained; its test and report are made now"})
    shutil.rmtree(out / "checkpoints", ignore_errors=True)
    result = load(out)
    assert result.source is not None
    return result, _finish(result, _test_set(result.source, data, about["skip_bad"], report), data, out, report)


def _test_set(loaded: LoadedModel, data: Data, skip_bad: bool, report: Report) -> ImageSet | TextSet | None:
    progress = stage(report, "reading test images")
    test_set = None if data.test is None else loaded.dataset(data.test, skip_bad, progress)
    if loaded.bad:
        report({"note": f"{len(loaded.bad)} unreadable images are left out, such as {loaded.bad[0]}"})
    return test_set


def _finish(
    result: Result, test_set: ImageSet | TextSet | None, data: Data, out: Path, report: Report
) -> dict[str, float] | None:
    """Test, and write the report."""
    metrics = None
    if test_set is not None:
        assessment = assess(result, test_set, 0, stage(report, "testing"))
        write_json(out / "assessment.json", assessment)
        metrics = assessment["metrics"]
    skipped = data.skipped + (result.source.bad if result.source else [])
    write_json(out / "run.json", {**read_run(out), "metrics": metrics, "skipped": skipped})
    write_report(out)
    return metrics


def stage(report: Report, name: str) -> Callable[[int, int], None]:
    """Return a callback for progress that reports a stage of this name."""
    return lambda done, total: report({"stage": name, "done": done, "total": total})
