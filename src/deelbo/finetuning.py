"""One call from a network and a dataset to a classifier whose regularisation was learned."""

from __future__ import annotations

import copy
import csv
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from deelbo._modules import unwrap
from deelbo.methods import Variational, make_method
from deelbo.posteriors import IsotropicPosterior
from deelbo.priors.transfer import Head
from deelbo.training.batches import in_order, own_randomness, to_device
from deelbo.training.checkpoint import read_json, read_tensors, write_json, write_tensors
from deelbo.training.evaluation import metrics, probabilities
from deelbo.training.settings import Settings

SCHEMA = 1  # of run.json


@dataclass
class Result:
    """A finished run.

    Args:
        model: The network with the best candidate's mean weights, in eval mode.
        settings: Of the run.
        learning_rate: The best one.
        objective: Its training objective.
        prior_variances: Learned (or given) variances by group.
        scale: The posterior's, None for a point estimate.
        history: A row for each epoch of each candidate.
        values: The objective of the candidates at each rung of the search, by step and learning rate.
    """

    model: nn.Module
    settings: Settings
    learning_rate: float
    objective: float
    prior_variances: dict[str, float]
    scale: float | None
    history: list[dict[str, float]]
    values: dict[int, dict[float, float]]

    @property
    def posterior(self) -> IsotropicPosterior | None:
        """The posterior around the model's weights, None for a point estimate."""
        return None if self.scale is None else IsotropicPosterior(self.model, init_scale=self.scale, seed=0)

    def predict(self, inputs: Any, samples: int = 0, batch_size: int = 64) -> Tensor:
        """Return class probabilities, [examples, classes].

        Args:
            inputs: A batch as the network takes it: a tensor, or a dictionary of tensors.
            samples: 0 plugs in the means; S > 0 averages S draws from the posterior.
            batch_size: Examples at a time.
        """
        device = next(self.model.parameters()).device
        if isinstance(inputs, dict):
            parts = {name: value.split(batch_size) for name, value in inputs.items()}
            number = len(next(iter(parts.values())))
            batches: list[Any] = [{name: values[i] for name, values in parts.items()} for i in range(number)]
        else:
            batches = list(inputs.split(batch_size))
        return probabilities(self.model, [to_device(b, device) for b in batches], self.posterior, samples)

    def evaluate(self, dataset: Dataset, samples: int = 0, batch_size: int = 64) -> dict[str, float]:
        """Return {"accuracy", "balanced_accuracy", "nll", "ece"} on a labelled dataset.

        Args:
            dataset: Examples with labels, as for training.
            samples: 0 plugs in the means; S > 0 averages S draws from the posterior.
            batch_size: Examples at a time.
        """
        pairs = list(in_order(dataset, batch_size, next(self.model.parameters()).device))
        predicted = probabilities(self.model, [inputs for inputs, _ in pairs], self.posterior, samples)
        return metrics(predicted, torch.cat([labels for _, labels in pairs]))

    def save(self, path: str | Path) -> None:
        """Write `run.json`, `history.csv`, `model.safetensors` and `posterior.safetensors` into a folder.

        Raises:
            FileExistsError: If the folder holds another run, or something else.
        """
        path = Path(path)
        if path.exists() and any(path.iterdir()):
            raise FileExistsError(f"{path} is not empty; choose a new folder")
        self._write(path)

    def _write(self, path: Path) -> None:
        write_tensors(path / "model.safetensors", dict(self.model.state_dict()))
        if self.scale is not None:
            write_tensors(path / "posterior.safetensors", {"scale": torch.tensor(self.scale, dtype=torch.float64)})
        columns = list(dict.fromkeys(name for row in self.history for name in row))
        with (path / "history.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(self.history)
        values = {str(step): {str(rate): v for rate, v in row.items()} for step, row in self.values.items()}
        learned = {
            "learning_rate": self.learning_rate,
            "objective": self.objective,
            "prior_variances": self.prior_variances,
            "scale": self.scale,
            "search": values,
        }
        write_json(
            path / "run.json",
            {
                "schema": SCHEMA,
                "status": "finished",
                "settings": self.settings.as_dict(),
                "learned": learned,
                "versions": {"deelbo": _version(), "torch": torch.__version__},
            },
        )


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
    report: Callable[[dict[str, Any]], None] | None = None,
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
        report: Called with what happens, for progress bars; see `Search`.
        settings: The fields of `Settings`: method, prior, kappa, learning_rates, lr_search, steps, batch_size, seed...

    Returns:
        The best candidate, with its history.

    Raises:
        ValueError: If a setting is wrong, the data are no classification data, or `out` holds a run of other settings.
        FileExistsError: If `out` holds something else, or a finished run.
        AllDivergedError: If every learning rate diverged.
    """
    try:
        from accelerate import Accelerator

        from deelbo.training.loop import Candidate
        from deelbo.training.search import FolderStore, MemoryStore, Search
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f'{error.name} is missing: pip install "deelbo[training]"') from error

    chosen = Settings(**settings)
    number = len(train_set)  # type: ignore[arg-type]
    if number == 0:
        raise ValueError("the training set is empty")
    folder = None if out is None else Path(out)
    accelerator = Accelerator(cpu=device == "cpu", mixed_precision=precision)
    network = model.to(accelerator.device)
    initial = _initial_state(folder, chosen, network)
    called = accelerator.prepare_model(network) if accelerator.num_processes > 1 else network

    def make_candidate(rate: float) -> Candidate:
        network.load_state_dict(initial)
        method = make_method(chosen, called, head, number)
        return Candidate(called, method, train_set, plain_train_set or train_set, rate, chosen, accelerator)

    store = MemoryStore() if folder is None else FolderStore(folder / "checkpoints")
    search = Search(chosen, make_candidate, store, checkpoint_seconds, report or (lambda event: None))
    with own_randomness(accelerator.device):
        rate, state = search.run()
    winner = make_candidate(rate)
    winner.restore(state)
    method = winner.method
    variational = isinstance(method, Variational)
    result = Result(
        model=unwrap(network).eval(),
        settings=chosen,
        learning_rate=rate,
        objective=search.values[chosen.steps][rate],
        prior_variances=method.prior.variances,  # type: ignore[attr-defined]
        scale=method.posterior.scale.item() if variational else None,  # type: ignore[attr-defined]
        history=[row for r in chosen.learning_rates for row in _history(store.get(r))],
        values=search.values,
    )
    if folder is not None and accelerator.is_main_process:
        result._write(folder)
        shutil.rmtree(folder / "checkpoints")
    return result


def _initial_state(folder: Path | None, settings: Settings, network: nn.Module) -> dict[str, Tensor]:
    """Return the weights that every candidate starts from; of an interrupted run, those that it started from."""
    initial = copy.deepcopy(network.state_dict())
    if folder is None:
        return initial
    path = folder / "run.json"
    if not path.exists():
        if folder.exists() and any(folder.iterdir()):
            raise FileExistsError(f"{folder} holds something else than a run; choose a new folder")
        write_tensors(folder / "checkpoints" / "initial.safetensors", initial)
        write_json(path, {"schema": SCHEMA, "status": "training", "settings": settings.as_dict()})
        return initial
    run = _read_run(folder)
    if run["status"] == "finished":
        raise FileExistsError(f"{folder} holds a finished run; choose a new folder")
    if differences := settings.differences(run["settings"]):
        raise ValueError(f"{folder} holds an unfinished run with other settings:\n  " + "\n  ".join(differences))
    return read_tensors(folder / "checkpoints" / "initial.safetensors")[0]


def _history(state: Any) -> Iterable[dict[str, float]]:
    return [] if state is None else state[1]["history"]


def _read_run(folder: Path) -> dict[str, Any]:
    run = read_json(folder / "run.json")
    if not isinstance(run, dict) or "schema" not in run:
        raise ValueError(f"{folder / 'run.json'} is not a run's")
    if run["schema"] != SCHEMA:
        raise ValueError(f"{folder / 'run.json'} has schema {run['schema']}; this version of deelbo reads {SCHEMA}")
    return run


def load(path: str | Path, model: nn.Module) -> Result:
    """Read a finished run.

    Args:
        path: Its folder.
        model: A network of the same architecture, whose weights are replaced.

    Raises:
        ValueError: If the run is unfinished, damaged, or of another architecture.
    """
    folder = Path(path)
    run = _read_run(folder)
    if run["status"] != "finished":
        raise ValueError(f"{folder} is an unfinished run; call finetune(..., out={str(path)!r}) to go on with it")
    try:
        model.load_state_dict(read_tensors(folder / "model.safetensors")[0])
    except RuntimeError as error:
        raise ValueError(f"{folder} is a run of another architecture: {error}") from error
    learned = run["learned"]
    with (folder / "history.csv").open(newline="") as file:
        history = [{k: float(v) for k, v in row.items() if v != ""} for row in csv.DictReader(file)]
    return Result(
        model=model.eval(),
        settings=Settings(**{**run["settings"], "learning_rates": tuple(run["settings"]["learning_rates"])}),
        learning_rate=learned["learning_rate"],
        objective=learned["objective"],
        prior_variances=learned["prior_variances"],
        scale=learned["scale"],
        history=history,
        values={int(s): {float(r): v for r, v in row.items()} for s, row in learned["search"].items()},
    )


def _version() -> str:
    from deelbo import __version__

    return __version__
