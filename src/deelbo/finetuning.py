"""One call from a network and a dataset to a classifier whose regularisation was learned."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from deelbo._modules import trainable, unwrap
from deelbo.methods import Variational, make_method
from deelbo.models import LoadedModel
from deelbo.priors.transfer import Head
from deelbo.result import SCHEMA, Result
from deelbo.run_folder import check_folder, check_space, locked
from deelbo.swag import load_source
from deelbo.swag.source import fingerprint
from deelbo.training.batches import fetch, logits, own_randomness
from deelbo.training.checkpoint import read_tensors, write_json, write_tensors
from deelbo.training.device import make_accelerator
from deelbo.training.loop import Candidate
from deelbo.training.search import AllDivergedError, FolderStore, MemoryStore, Search
from deelbo.training.settings import Settings


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
    chosen = Settings(**settings)
    head = head if head is None or isinstance(head, str) else list(head)  # as JSON gives it back
    plain_set = train_set if plain_train_set is None else plain_train_set
    folder = None if out is None else Path(out)
    if log is not None and folder is None:
        raise ValueError(f"log={log!r} needs a folder: out=...")
    accelerator = make_accelerator(device, precision, log, folder)
    network = model.to(accelerator.device)
    number = _check_data(network, train_set, plain_set, accelerator)
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
            return Candidate(called, method, train_set, plain_set, rate, chosen, accelerator)

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


def _check_data(network: nn.Module, train_set: Dataset, plain_set: Dataset, accelerator: Any) -> int:
    """Return N, if two examples look like those of classification.

    Raises:
        ValueError: If they do not.
    """
    number, plain = len(train_set), len(plain_set)  # type: ignore[arg-type]
    if number == 0:
        raise ValueError("the training set is empty")
    if number != plain:
        raise ValueError(f"plain_train_set has {plain} examples, and train_set {number}")
    few = min(2, number)  # some networks cannot take a batch of one
    modes = {module: module.training for module in network.modules()}
    try:
        with own_randomness(accelerator.device), torch.no_grad(), accelerator.autocast():
            inputs, labels = fetch(plain_set, range(few), accelerator.device)
            output = logits(network.eval(), inputs)
    finally:
        for module, training in modes.items():
            module.training = training
    if labels.shape != (few,) or labels.is_floating_point() or labels.is_complex():
        raise ValueError(f"a label must be one whole number, not {labels[0].tolist()}")
    if output.ndim != 2 or len(output) != few:
        raise ValueError(f"the network must give logits, [examples, classes], not {list(output.shape)}")
    return number


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
