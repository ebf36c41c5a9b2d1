"""One call from a network and a dataset to a classifier whose regularisation was learned."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import filelock
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from deelbo._extras import require
from deelbo._modules import trainable, unwrap
from deelbo.methods import Variational, make_method
from deelbo.models import LoadedModel
from deelbo.priors.transfer import Head
from deelbo.result import SCHEMA, Result, read_run
from deelbo.swag import load_source
from deelbo.swag.source import fingerprint
from deelbo.training.batches import own_randomness
from deelbo.training.checkpoint import read_tensors, write_json, write_tensors
from deelbo.training.settings import Settings

if TYPE_CHECKING:
    from deelbo.training.loop import Candidate


def finetune(
    model: nn.Module,
    train_set: Dataset,
    head: Head = None,
    *,
    plain_train_set: Dataset | None = None,
    out: str | Path | None = None,
    device: str | None = None,
    precision: str = "no",
    checkpoint_seconds: float = 60.0,
    log: str | None = None,
    report: Callable[[dict[str, Any]], None] | None = None,
    source: LoadedModel | None = None,
    about: dict[str, Any] | None = None,
    **settings: Any,
) -> Result:
    """Fine-tune a network without a validation set: the regularisation is learned, the objective chooses the rate.

    Args:
        model: Any network that gives logits; it ends with the trained weights.
        train_set: A map-style dataset of pairs (input, label) or dictionaries with "labels".
        head: Name of the classifier; found in timm, torchvision and Hugging Face models if None.
        plain_train_set: The same examples without augmentation, for the objective; `train_set` itself if None.
        out: A folder for checkpoints and results. An unfinished run there is resumed.
        device: "cpu" to stay off the GPU; accelerate's choice if None.
        precision: "no", "fp16" or "bf16", for autocast.
        checkpoint_seconds: How often an interrupted run could go on from.
        log: A tracker of accelerate's, such as "tensorboard", which writes into `out`.
        report: Called with what happens, for progress bars; see `Search`.
        source: Where `model` came from, if `load_model` made it, so that the run's folder is enough to use it.
        about: What else `run.json` shall keep and compare when a run is resumed, such as where the data are.
        settings: The fields of `Settings`: method, prior, kappa, learning_rates, lr_search, steps, batch_size, seed...
            With prior="ptyl:FILE" the backbone starts at the mean of the source task's posterior.

    Returns:
        The best candidate, with its history.

    Raises:
        ValueError: If a setting is wrong, the data are no classification data, or `out` holds a run of other settings.
        FileExistsError: If `out` holds something else, or a finished run.
        OSError: If there is no space for the checkpoints.
        AllDivergedError: If every learning rate diverged.
    """
    require("accelerate", "training")
    from deelbo.training.loop import Candidate
    from deelbo.training.search import AllDivergedError, FolderStore, MemoryStore, Search

    chosen = Settings(**settings)
    number = len(train_set)  # type: ignore[arg-type]
    if number == 0:
        raise ValueError("the training set is empty")
    folder = None if out is None else Path(out)
    if log is not None and folder is None:
        raise ValueError(f"log={log!r} needs a folder: out=...")
    accelerator = _accelerator(device, precision, log, folder)
    network = model.to(accelerator.device)
    about = {**(about or {}), "num_data": number, "head": head, "precision": precision}
    posterior = None if chosen.source is None else load_source(chosen.source, chosen.rank)
    if chosen.source is not None:
        about["prior_file"] = fingerprint(chosen.source)
    make_method(chosen, network, head, number, posterior)  # what it refuses, it refuses before anything is written
    if posterior is not None:
        posterior.start(network, head)
    with ExitStack() as held:
        with accelerator.main_process_first():
            if folder is not None and accelerator.is_main_process:
                held.enter_context(locked(folder))
            initial = _initial_state(folder, chosen, about, network, accelerator.is_main_process)
        if log is not None:
            accelerator.init_trackers("log")
            held.callback(accelerator.end_training)
        called = accelerator.prepare_model(network) if accelerator.num_processes > 1 else network

        def make_candidate(rate: float) -> Candidate:
            network.load_state_dict(initial)
            method = make_method(chosen, called, head, number, posterior)
            return Candidate(called, method, train_set, plain_train_set or train_set, rate, chosen, accelerator)

        writes = folder is not None and accelerator.is_main_process
        store = MemoryStore() if folder is None else FolderStore(folder / "checkpoints", writes)
        search = Search(chosen, make_candidate, store, checkpoint_seconds, report or (lambda event: None))
        try:
            with own_randomness(accelerator.device):
                rate, state = search.run()
        except AllDivergedError:
            if folder is not None and writes:  # other rates would be refused as other settings of this run
                shutil.rmtree(folder / "checkpoints")
                (folder / "run.json").unlink()
            raise
        winner = make_candidate(rate)
        winner.restore(state)
        notes = [kept[1] for r in chosen.learning_rates if (kept := store.get(r)) is not None]
        result = _result(winner, search.values, notes, source)
        accelerator.wait_for_everyone()
        if folder is not None and writes:
            result.write(folder, {"about": about})
            shutil.rmtree(folder / "checkpoints")
    return result


def _result(
    winner: Candidate, values: dict[int, dict[float, float]], notes: list[dict[str, Any]], source: LoadedModel | None
) -> Result:
    """Sum up a search: its best candidate, and the histories of all."""
    method: Any = winner.method
    network = unwrap(winner.network)
    return Result(
        model=network.eval(),
        settings=winner.settings,
        learning_rate=winner.learning_rate,
        objective=values[winner.settings.steps][winner.learning_rate],
        prior_variances=method.prior.variances,
        scale=method.posterior.scale.item() if isinstance(method, Variational) else None,
        history=[row for each in notes for row in each["history"]],
        values=values,
        num_data=winner.num_data,
        num_params=sum(p.numel() for p in trainable(network).values()),
        speed=_speed([each["clock"] for each in notes]),
        source=source,
    )


def check_device(device: str) -> None:
    """Refuse a device that this machine has not.

    Raises:
        ValueError: If it has not; the message says which there are.
    """
    kinds = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not kinds.get(device.split(":")[0]):
        raise ValueError(
            f"device={device!r} is not on this machine; there is {', '.join(k for k in kinds if kinds[k])}"
        )


def check_precision(precision: str) -> None:
    """Refuse what is no kind of autocast.

    Raises:
        ValueError: If it is none.
    """
    if precision not in ("no", "fp16", "bf16"):
        raise ValueError(f"precision={precision!r}, but it is no, fp16 or bf16")


def _accelerator(device: str | None, precision: str, log: str | None, folder: Path | None) -> Any:
    accelerate = require("accelerate", "training")
    check_precision(precision)
    if device is not None:
        check_device(device)
    options = {"cpu": device == "cpu", "mixed_precision": precision, "log_with": log, "project_dir": folder}
    try:
        accelerator = accelerate.Accelerator(**options)
    except ValueError as error:
        if "already been initialized" not in str(error):
            raise
        accelerate.state.AcceleratorState._reset_state()  # an earlier call of this process had another precision
        accelerator = accelerate.Accelerator(**options)
    if precision == "fp16" and accelerator.device.type == "cpu":
        raise ValueError("precision fp16 needs a GPU; on a CPU there is bf16")
    return accelerator


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a run's folder against other processes; the operating system lets go if this one dies."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    place = folder.parent / f".{folder.name}.lock"
    lock = filelock.FileLock(place)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise FileExistsError(f"another process is at work on {folder}") from None
    try:
        yield
    finally:
        place.unlink(missing_ok=True)  # first, while it is held
        lock.release()


def run_differences(run: dict[str, Any], settings: Settings, about: dict[str, Any]) -> list[str]:
    """Say how a stored run differs from what is wanted, one line each."""
    stored = run.get("about", {})
    # Where the data are does not matter while they are the same.
    compared = {name: value for name, value in about.items() if name not in ("data", "data_dir") and name in stored}
    differences = settings.differences(run["settings"])
    return differences + [f"{n}: {stored[n]!r} -> {v!r}" for n, v in compared.items() if stored[n] != v]


def check_folder(folder: Path, settings: Settings, about: dict[str, Any]) -> bool:
    """Tell whether a folder holds an unfinished run of these settings, which can be resumed.

    Args:
        folder: Of the run.
        settings: Of the run.
        about: Further entries, compared where both have them.

    Raises:
        FileExistsError: If it holds a finished run, or something else.
        ValueError: If it holds an unfinished run of other settings.
    """
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file; choose a new folder")
    if not (folder / "run.json").exists():
        if folder.exists() and any(p.name != "checkpoints" and p.suffix != ".part" for p in folder.iterdir()):
            raise FileExistsError(f"{folder} holds something else than a run; choose a new folder")
        return False
    run = read_run(folder)
    if run["status"] == "finished":
        raise FileExistsError(f"{folder} holds a finished run; choose a new folder")
    if differences := run_differences(run, settings, about):
        raise ValueError(f"{folder} holds an unfinished run with other settings:\n  " + "\n  ".join(differences))
    return True


def _initial_state(
    folder: Path | None, settings: Settings, about: dict[str, Any], network: nn.Module, writes: bool
) -> dict[str, Tensor]:
    """Return the weights that every candidate starts from; of an interrupted run, those that it started from."""
    initial = copy.deepcopy(network.state_dict())
    if folder is None:
        return initial
    if not check_folder(folder, settings, about):
        check_space(folder, initial, settings)
        if writes:
            shutil.rmtree(folder / "checkpoints", ignore_errors=True)  # of a run that lost its run.json
            write_tensors(folder / "checkpoints" / "initial.safetensors", initial)
            opening = {"schema": SCHEMA, "status": "training", "settings": settings.as_dict(), "about": about}
            write_json(folder / "run.json", opening)
        return initial
    return read_tensors(folder / "checkpoints" / "initial.safetensors")[0]


def check_space(folder: Path, weights: dict[str, Tensor], settings: Settings) -> None:
    """Refuse a disk that the checkpoints would fill.

    Raises:
        OSError: If there is not enough space.
    """
    place = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    copies = 2 if settings.optimizer == "sgd" else 3  # the weights and the optimizer's buffers
    size = sum(value.numel() * value.element_size() for value in weights.values())
    needed = size * (copies * (len(settings.learning_rates) + 1) + 2) + 5_000_000  # the report and the rest
    free = shutil.disk_usage(place).free
    if free < needed:
        raise OSError(f"no space: a run needs {needed / 1e9:.2g} GB in {folder}, and {free / 1e9:.2g} GB are free")


def _speed(clocks: Iterable[dict[str, float]]) -> dict[str, float]:
    """Sum up what the candidates' clocks say.

    Returns:
        "examples_per_second" of training steps; "outside_network", the share of those steps that is spent outside the
        forward and backward passes (data, noise, prior, optimizer); "data", the part of that for data; "seconds" of
        steps and "seconds_objective" of estimates of the objective.
    """
    clocks = list(clocks)
    total = {name: sum(clock[name] for clock in clocks) for name in clocks[0]}
    steps = max(total["steps"], 1e-9)
    return {
        "examples_per_second": total["examples"] / steps,
        "outside_network": 1 - total["network"] / steps,
        "data": total["data"] / steps,
        "seconds": total["steps"],
        "seconds_objective": total["values"],
    }
