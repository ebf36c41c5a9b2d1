"""From data and the name of a model to the posterior of a source task: what `deelbo prior` does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader

from deelbo.data import Data, load_data
from deelbo.job import Job, Report, load_for, stage
from deelbo.models import load_model
from deelbo.run_folder import locked
from deelbo.swag import DivergedError, SourcePosterior, collect, read_released
from deelbo.training.device import check_device, default_device


def collect_job(
    job: Job, settings: dict[str, Any], out: Path, batch_size: int, device: str | None, report: Report
) -> tuple[SourcePosterior, Path]:
    """Train on a source task, gather its posterior and write it; an interrupted collection goes on.

    Args:
        job: Data and model.
        settings: Of `collect`.
        out: A new file; beside it a checkpoint, OUT.part, while training.
        batch_size: Examples a step.
        device: "cpu" to stay off the GPU; None for what there is.
        report: Called with {"note": text}, {"stage": name, "done": n, "total": n} and the events of `collect`.

    Returns:
        The posterior, and where it is: at `out`, or beside it if a file appeared there meanwhile.

    Raises:
        FileExistsError: If the file is there already.
        ValueError: If data, model or settings are not what they should be.
    """
    _check_free(out)
    if device is not None:
        check_device(device)
    columns = {"text_column": job.text_column, "label_column": job.label_column}
    data = load_data(job.data, data_dir=job.data_dir, skip_bad=job.skip_bad, **columns)
    for note in data.notes:
        report({"note": note})
    with locked(out):
        for orphan in out.parent.glob(f".{out.name}.part.*.part"):
            orphan.unlink()  # of a process that was killed while it wrote
        return _collect(job, settings, out, batch_size, device or default_device(), data, report)


def _collect(
    job: Job, settings: dict[str, Any], out: Path, batch_size: int, device: str, data: Data, report: Report
) -> tuple[SourcePosterior, Path]:
    loaded = load_for(job, data, settings.get("seed", 0))
    train_set, _ = loaded.training_sets(data.train, job.skip_bad, stage(report, "reading training images"), job.flip)
    size = min(batch_size, len(train_set))
    collate = getattr(train_set, "collate", None)
    loader: DataLoader[Any] = DataLoader(train_set, size, shuffle=True, drop_last=True, collate_fn=collate)
    about = {
        "model": job.model, "data": data.fingerprint(), "classes": data.classes, "num_data": len(train_set),
        "batch_size": size, "flip": job.flip, "image_size": job.image_size, "max_length": job.max_length,
        "from_weights": job.weights, "head": job.head,
    }  # fmt: skip
    checkpoint = out.with_name(out.name + ".part")
    if checkpoint.exists():
        report({"note": f"going on from {checkpoint}"})
    try:
        found = collect(
            loaded.network.to(device), loader, head=job.head, checkpoint=checkpoint, about=about, report=report,
            keep_on="cpu", **settings,
        )  # fmt: skip
    except DivergedError:
        checkpoint.unlink(missing_ok=True)  # a smaller rate would be refused as another setting
        raise
    if out.exists():  # since training began
        out = out.with_stem(out.stem + "-new")
    found.save(out)
    checkpoint.unlink(missing_ok=True)
    return found, out


def convert_job(name: str, model: str, head: str | None, out: Path) -> SourcePosterior:
    """Convert a released prior into a file of ours.

    Args:
        name: The common beginning of the released files' paths.
        model: Of the released architecture.
        head: Name of its classifier.
        out: A new file.

    Raises:
        FileExistsError: If the file is there already.
        ValueError: If the files do not fit the model.
    """
    _check_free(out)
    network = load_model(model, "image", ["a", "b"], pretrained=False).network
    found = read_released(name, network, head)
    found.notes["settings"] = {"model": model}
    found.save(out)
    return found


def _check_free(out: Path) -> None:
    if out.exists():
        raise FileExistsError(f"{out} exists already; choose another name")
    if out.suffix != ".safetensors":
        raise ValueError(f"--out {out}: the file must be called something.safetensors")
    out.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(out.parent, os.W_OK):
        raise PermissionError(f"{out.parent} cannot be written to")
