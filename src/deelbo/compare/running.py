"""One training run of a comparison, from its settings to its record."""

from __future__ import annotations

import hashlib
import math
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from deelbo.compare.records import Record, Records
from deelbo.compare.task import Trial
from deelbo.data import Data, Examples, load_data, split, stratified_subset
from deelbo.data.images import ImageSet, ImageStore
from deelbo.finetuning import finetune
from deelbo.job import Job, Report, load_for
from deelbo.laplace import Conditional, conditional_likelihood, laplace_posterior
from deelbo.methods import make_prior
from deelbo.models import LoadedModel
from deelbo.priors import GaussianPrior
from deelbo.result import Result, labels_of, load, read_run, versions
from deelbo.training.batches import in_order, logits
from deelbo.training.search import AllDivergedError, planned_steps

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


def data_fingerprint(data: Data) -> str:
    """Return a hash of all examples, for training and for the test."""
    assert data.test is not None
    return data.fingerprint() + Data(data.kind, data.classes, data.test).fingerprint()


@lru_cache(maxsize=2)
def _checked_data(job: Job, test_size: int | None, expected: str) -> Data:
    data = read_data(job, test_size)
    if data_fingerprint(data) != expected:
        raise ValueError(f"the data in {job.data} are not, or no longer, those that the comparison began with")
    return data


def run_trial(trial: Trial, records: Records, device: str | None = None, report: Report = lambda e: None) -> Record:
    """Train, validate and test; an interrupted run is resumed from its checkpoints.

    Args:
        trial: What to do.
        records: Where its checkpoints are kept.
        device: See `finetune`.
        report: Called with the events of `Search`.

    Returns:
        The record, which the caller keeps.

    Raises:
        ValueError: If the data are others than those of the trial.
    """
    seed = trial.settings.seed
    data = _checked_data(replace(trial.job, train_size=None), trial.test_size, trial.data)
    data = split(data, trial.job.train_size, None, seed)
    train, held = divide(data.train, seed) if trial.held_out else (data.train, None)
    loaded = load_for(trial.job, data, seed)
    sets = loaded.training_sets(train, trial.job.skip_bad, None, trial.job.flip)
    prior = make_prior(trial.settings, loaded.network, trial.job.head) if trial.clml else None
    seconds = {"objective": 0.0, "validation": 0.0, "clml": 0.0}
    record: Record = {
        "key": trial.key,
        "trial": trial.identity(),
        "runs": planned_steps(trial.settings) / trial.settings.steps,
        "seconds": seconds,
        "diverged": False,
        **dict.fromkeys(("objective", "validation", "clml", "test")),
    }
    start = time.perf_counter()
    try:
        result = _train(trial, loaded, *sets, records, device, report)
    except AllDivergedError:
        seconds["training"] = time.perf_counter() - start
        return {**record, "diverged": True}
    seconds["training"] = result.speed["seconds"]  # of all attempts together
    seconds["objective"] = result.speed["seconds_objective"]
    if held is not None:
        held_set = loaded.dataset(held, trial.job.skip_bad)
        with _timed(seconds, "validation"):
            record["validation"] = _finite(result.evaluate(held_set, batch_size=BATCH))
        if prior is not None:
            with _timed(seconds, "clml"):
                record["clml"] = _finite(vars(_conditional(trial, result, prior, sets[1], held_set)))
    test_set = _test_set(trial, loaded, data)
    with _timed(seconds, "test"):
        record["test"] = _finite(result.evaluate(test_set, batch_size=BATCH))
    return {
        **record,
        "tested": len(test_set),  # type: ignore[arg-type]
        "num_data": result.num_data,
        "num_params": result.num_params,
        "objective": result.objective,
        "learning_rate": result.learning_rate,
        "prior_variances": _finite(result.prior_variances),
        "scale": result.scale,
        "kappa": result.history[-1].get("kappa"),
        "versions": versions(),
    }


def _conditional(
    trial: Trial, result: Result, prior: GaussianPrior, plain_set: Dataset, held_set: Dataset
) -> Conditional:
    """Return the conditional marginal likelihood of the held-out examples; the prior was made before the training."""
    assert trial.clml is not None
    prior.set_variances(trial.settings.prior_variances or {})
    device = next(result.model.parameters()).device
    posterior = laplace_posterior(result.model, prior, in_order(plain_set, trial.settings.batch_size, device), 0.0)

    @torch.no_grad()
    def log_probabilities() -> Tensor:  # not the logarithm of probabilities, which underflow
        batches = in_order(held_set, BATCH, device)
        return torch.cat([logits(result.model, inputs).double().log_softmax(1) for inputs, _ in batches])

    return conditional_likelihood(posterior, log_probabilities, labels_of(held_set), *trial.clml)


@contextmanager
def _timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - start


@lru_cache(maxsize=1)
def inspect_model(job: Job, test_size: int | None) -> tuple[LoadedModel, str]:
    """Return a comparison's network, and a fingerprint of its weights, its structure and how it reads its inputs."""
    loaded = load_for(job, read_data(job, test_size), 0)
    reads = {name: value for name, value in loaded.as_dict().items() if name != "spec"}
    vocabulary = sorted(loaded.tokenizer.get_vocab().items()) if loaded.tokenizer is not None else None
    structure = re.sub(r" at 0x[0-9a-f]+", "", repr(loaded.network))  # functions show where they are in memory
    digest = hashlib.sha256(repr((structure, reads, vocabulary)).encode())
    for name, value in loaded.network.state_dict().items():
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return loaded, digest.hexdigest()[:16]


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
