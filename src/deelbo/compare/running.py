"""One training run of a comparison, from its settings to its record."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch.utils.data import Dataset

from deelbo.compare.records import Record, Records
from deelbo.compare.task import Trial
from deelbo.data import Data, Examples, load_data, split, stratified_subset
from deelbo.data.images import ImageSet, ImageStore
from deelbo.finetuning import finetune
from deelbo.job import Job
from deelbo.laplace import conditional_likelihood, laplace_posterior
from deelbo.methods import make_prior
from deelbo.models import LoadedModel, load_model
from deelbo.result import Result, labels_of, load, read_run, versions
from deelbo.training.batches import in_order
from deelbo.training.search import AllDivergedError, planned_steps

Report = Callable[[dict[str, Any]], None]

BATCH = 64  # of examples to test on


@lru_cache(maxsize=2)
def read_data(job: Job, test_size: int | None) -> Data:
    """Return the data of a comparison, with its fixed test set, before a training subset is taken.

    Args:
        job: Its training size is not looked at.
        test_size: Test examples to use, a subset by class; None for all.

    Raises:
        ValueError: If there is no test set.
    """
    columns = {"text_column": job.text_column, "label_column": job.label_column}
    data = load_data(job.data, data_dir=job.data_dir, skip_bad=job.skip_bad, **columns)
    data = split(data, None, job.test_fraction, 0)
    if data.test is None:
        raise ValueError(f"a comparison needs a test set, and {job.data} has none: --test-fraction 0.2 holds one out")
    if test_size is not None:
        if test_size > len(data.test):
            raise ValueError(f"--test-size {test_size}, but there are {len(data.test)} test examples")
        data = replace(data, test=data.test.take(stratified_subset(data.test.labels, test_size, 0)))
    return data


def held_out_number(labels: list[int]) -> int:
    """Return how many training examples a search holds out: a fifth, and at least one of each class.

    Raises:
        ValueError: If a class has a single example.
    """
    counts = [labels.count(label) for label in set(labels)]
    if min(counts) < 2:
        raise ValueError("searches hold a fifth out by class, and a class has a single training example")
    return max(len(counts), round(len(labels) / 5))


def divide(examples: Examples, seed: int) -> tuple[Examples, Examples]:
    """Return the four fifths that a search trains on, and the fifth that it validates on, by class."""
    held = set(stratified_subset(examples.labels, held_out_number(examples.labels), seed))
    return examples.take(i for i in range(len(examples)) if i not in held), examples.take(sorted(held))


def run_trial(trial: Trial, records: Records, device: str | None = None, report: Report = lambda e: None) -> Record:
    """Train, validate and test; an interrupted run is resumed from its checkpoints.

    Args:
        trial: What to do.
        records: Where its checkpoints are kept.
        device: See `finetune`.
        report: Called with the events of `Search`.

    Returns:
        The record, which the caller keeps.
    """
    data = split(read_data(replace(trial.job, train_size=None), trial.test_size), trial.job.train_size, None,
                 trial.settings.seed)  # fmt: skip
    train, held = divide(data.train, trial.settings.seed) if trial.held_out else (data.train, None)
    loaded = load_for(trial, data)
    train_set, plain_set = loaded.training_sets(train, trial.job.skip_bad, None, trial.job.flip)
    record: Record = {"key": trial.key, "trial": trial.identity(), "diverged": False, "clml": None, "validation": None}
    record["runs"] = planned_steps(trial.settings) / trial.settings.steps
    seconds = record["seconds"] = {"validation": 0.0, "clml": 0.0}
    prior = make_prior(trial.settings, loaded.network, trial.job.head) if trial.clml else None
    start = time.perf_counter()
    try:
        result = _train(trial, loaded, train_set, plain_set, records, device, report)
    except AllDivergedError:
        seconds["training"] = time.perf_counter() - start
        return {**record, "diverged": True, "test": None, "objective": None}
    seconds["training"] = result.speed["seconds"] + result.speed["seconds_objective"]  # of all attempts together
    if held is not None:
        held_set = loaded.dataset(held, trial.job.skip_bad)
        start = time.perf_counter()
        record["validation"] = _finite(result.evaluate(held_set, batch_size=BATCH))
        seconds["validation"] = time.perf_counter() - start
        if prior is not None and trial.clml is not None:
            start = time.perf_counter()
            prior.set_variances(trial.settings.prior_variances or {})
            device_ = next(result.model.parameters()).device
            batches = in_order(plain_set, trial.settings.batch_size, device_)
            posterior = laplace_posterior(result.model, prior, batches, 0.0)
            found = conditional_likelihood(
                posterior,
                lambda: result.probabilities(held_set, batch_size=BATCH).log(),
                labels_of(held_set),
                *trial.clml,
            )
            record["clml"] = _finite(vars(found))
            seconds["clml"] = time.perf_counter() - start
    start = time.perf_counter()
    test_set = _test_set(trial, loaded, data)
    record["test"] = _finite(result.evaluate(test_set, batch_size=BATCH))
    record["tested"] = len(test_set)  # type: ignore[arg-type]
    seconds["test"] = time.perf_counter() - start
    return {
        **record,
        "num_data": result.num_data,
        "num_params": result.num_params,
        "objective": result.objective,
        "learning_rate": result.learning_rate,
        "prior_variances": _finite(result.prior_variances),
        "scale": result.scale,
        "kappa": result.history[-1].get("kappa"),
        "versions": versions(),
    }


def load_for(trial: Trial, data: Data) -> LoadedModel:
    """Return the network of a trial at its initial state."""
    torch.default_generator.manual_seed(trial.settings.seed)  # of the new classifier's weights
    job = trial.job
    sizes = {"image_size": job.image_size, "max_length": job.max_length}
    return load_model(job.model, data.kind, data.classes, weights=job.weights, **sizes)  # type: ignore[arg-type]


def _train(
    trial: Trial,
    loaded: LoadedModel,
    train_set: Dataset,
    plain_set: Dataset,
    records: Records,
    device: str | None,
    report: Report,
) -> Result:
    out = records.work(trial.key)
    if (out / "run.json").is_file() and read_run(out)["status"] == "finished":  # killed while it was tested
        return load(out, loaded.network)
    settings: dict[str, Any] = trial.settings.as_dict()
    return finetune(
        loaded.network,
        train_set,
        trial.job.head,
        plain_train_set=plain_set,
        out=out,
        device=device,
        precision=trial.precision,
        report=report,
        **settings,
    )


_stores: dict[str, ImageStore] = {}


def _test_set(trial: Trial, loaded: LoadedModel, data: Data) -> Dataset:
    """Return the test set as this network reads it; images are decoded once for all runs of a process."""
    assert data.test is not None
    if loaded.image is None:
        return loaded.dataset(data.test)
    key = repr((trial.data, trial.job.model, trial.job.image_size, trial.test_size, trial.job.skip_bad))
    if key not in _stores:
        _stores.clear()
        _stores[key] = ImageStore(data.test, loaded.image, trial.job.skip_bad)
    return ImageSet(_stores[key], loaded.image)


def _finite(values: dict[str, float]) -> dict[str, float | None]:
    """JSON has no infinity."""
    return {name: value if math.isfinite(value) else None for name, value in values.items()}
