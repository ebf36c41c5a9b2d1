"""The work of `deelbo prior`: from data and the name of a model to the posterior of a source task."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader

from deelbo import events
from deelbo._files import locked
from deelbo.data import Targets
from deelbo.errors import DivergedError
from deelbo.likelihoods import LIKELIHOODS
from deelbo.models import load_model
from deelbo.priors import SourcePosterior
from deelbo.specs import DataSpec, ModelSpec
from deelbo.swag import collect, read_released
from deelbo.training.batches import labels_of
from deelbo.training.device import check_device, default_device


def collect_job(
    data_spec: DataSpec,
    model_spec: ModelSpec,
    settings: dict[str, Any],
    out: Path,
    *,
    batch_size: int,
    device: str | None = None,
    listener: events.Listener = events.ignore,
) -> tuple[SourcePosterior, Path]:
    """Train on a source task, gather its posterior and write it; an interrupted collection is continued.

    Args:
        data_spec: Specification of the data.
        model_spec: Specification of the model.
        settings: Arguments of `collect`, such as steps and rank.
        out: Path of a new file; during training there is a checkpoint OUT.part beside it.
        batch_size: Number of examples in a step.
        device: "cpu" to stay off the GPU; None for the GPU if there is one.
        listener: Called with the events of the job.

    Returns:
        The posterior, and the path of its file: `out`, or another name if a file appeared there in the meantime.

    Raises:
        FileExistsError: If the file is there already.
        ValueError: If the data, the model or the settings cannot be used.
    """
    _check_free(out)
    if device is not None:
        check_device(device)
    data = data_spec.read()
    listener(events.Note(data.describe()))
    for note in data.notes:
        listener(events.Note(note))
    with locked(out):
        for orphan in out.parent.glob(f".{out.name}.part.*.part"):
            orphan.unlink()  # left by a process that was killed while writing
        network, reader = model_spec.load(data, settings.get("seed", 0))
        progress = events.stage(listener, "reading training images")
        train_set, _ = reader.training_sets(data.train, data_spec.skip_bad, progress, data_spec.flip)
        size = min(batch_size, len(train_set))
        collate = getattr(train_set, "collate", None)
        loader: DataLoader[Any] = DataLoader(train_set, size, shuffle=True, drop_last=True, collate_fn=collate)
        about = {
            "model": model_spec.model,
            "data": data.fingerprint(),
            "task": data.targets.task,
            "classes": data.targets.names,
            "num_data": len(train_set),
            "batch_size": size,
            "flip": data_spec.flip,
            "image_size": model_spec.image_size,
            "max_length": model_spec.max_length,
            "pooling": model_spec.pooling,
            "from_weights": model_spec.weights,
            "head": model_spec.head,
        }
        likelihood = LIKELIHOODS[data.targets.likelihood].for_training("none")
        if likelihood.needs_targets:
            likelihood.fit(labels_of(train_set), data.targets.num_outputs)
        checkpoint = out.with_name(out.name + ".part")
        if checkpoint.exists():
            listener(events.Note(f"continuing from {checkpoint}"))
        try:
            posterior = collect(
                network.to(device or default_device()),
                loader,
                likelihood=likelihood,
                head=model_spec.head,
                checkpoint=checkpoint,
                about=about,
                listener=listener,
                keep_on="cpu",
                **settings,
            )
        except DivergedError:
            checkpoint.unlink(missing_ok=True)  # else a smaller rate would be refused as another setting
            raise
        if out.exists():  # since training began
            out = out.with_stem(out.stem + "-new")
        posterior.save(out)
        checkpoint.unlink(missing_ok=True)
        return posterior, out


def convert_job(name: str, model: str, head: str | None, out: Path) -> SourcePosterior:
    """Convert a prior released with the paper "Pre-Train Your Loss" into a file of deelbo's.

    Args:
        name: The common beginning of the released files' paths.
        model: Specification of a model of the released architecture.
        head: Name of its classifier; found automatically in most networks if None.
        out: Path of a new file.

    Raises:
        FileExistsError: If the file is there already.
        ValueError: If the files do not fit the model.
    """
    _check_free(out)
    network, _ = load_model(model, "image", Targets("classification", ["a", "b"]), pretrained=False)
    posterior = read_released(name, network, head)
    posterior.notes["settings"] = {"model": model}
    posterior.save(out)
    return posterior


def _check_free(out: Path) -> None:
    if out.exists():
        raise FileExistsError(f"{out} exists already; choose another name")
    if out.suffix != ".safetensors":
        raise ValueError(f"out={out}: the name of the file must end in .safetensors")
    out.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(out.parent, os.W_OK):
        raise PermissionError(f"{out.parent} cannot be written to")
