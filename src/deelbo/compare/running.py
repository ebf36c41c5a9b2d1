"""One training run of a comparison, from its settings to its record."""

from __future__ import annotations

import copy
import hashlib
import math
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from deelbo import events
from deelbo.compare.problem import Trial
from deelbo.compare.records import Record, Records
from deelbo.compare.setfit import setfit_probabilities
from deelbo.data import Data, Examples, Targets, split, stratified_subset
from deelbo.data.images import ImageSet, ImageStore
from deelbo.errors import AllDivergedError
from deelbo.laplace import Conditional, conditional_likelihood, laplace_posterior
from deelbo.loading import load
from deelbo.metrics import compute_metrics, measure
from deelbo.models import InputReader
from deelbo.priors import GaussianPrior
from deelbo.result import Result, versions
from deelbo.run_folder import RunFolder
from deelbo.run_settings import about_run, decide
from deelbo.specs import DataSpec, ModelSpec
from deelbo.training.batches import in_order, labels_of, network_output
from deelbo.training.device import Execution
from deelbo.training.search import planned_steps
from deelbo.training.sets import TrainingSets
from deelbo.training_run import TrainingRun

BATCH = 64  # batch size in tests


@lru_cache(maxsize=2)
def read_data(data_spec: DataSpec, test_size: int | None) -> Data:
    """Return the data of a comparison, with its fixed test set, before a training subset is taken.

    Args:
        data_spec: Specification of the data; its training size is ignored.
        test_size: Number of test examples to use, a random subset by class; None for all.

    Raises:
        ValueError: If there is no test set.
    """
    data = split(data_spec.read(), None, data_spec.test_fraction, 0)
    if data.test is None:
        raise ValueError(
            f"a comparison needs a test set, and {data_spec.data} has none: test_fraction=0.2 holds one out"
        )
    if test_size is not None:
        if test_size > len(data.test):
            raise ValueError(f"test_size={test_size}, but there are {len(data.test)} test examples")
        strata = data.targets.strata(data.test.labels)
        data = replace(data, test=data.test.take(stratified_subset(strata, test_size, 0)))
    return data


def held_out_number(strata: list[int]) -> int:
    """Return how many training examples a search holds out: a fifth, and at least one of each class.

    Raises:
        ValueError: If a class has a single example.
    """
    counts = Counter(strata).values()
    if min(counts) < 2:
        raise ValueError("searches hold out a fifth of each class, but a class has a single training example")
    return max(len(counts), round(len(strata) / 5))


def divide(examples: Examples, targets: Targets, seed: int) -> tuple[Examples, Examples]:
    """Return the four fifths that a search trains on, and the fifth that it validates on, by class."""
    strata = targets.strata(examples.labels)
    held_out = set(stratified_subset(strata, held_out_number(strata), seed))
    rest = (i for i in range(len(examples)) if i not in held_out)
    return examples.take(rest), examples.take(sorted(held_out))


def data_fingerprint(data: Data) -> str:
    """Return a hash of all examples, for training and testing."""
    assert data.test is not None
    return data.fingerprint() + replace(data, train=data.test).fingerprint()


@lru_cache(maxsize=2)
def _checked_data(data_spec: DataSpec, test_size: int | None, expected: str) -> Data:
    data = read_data(data_spec, test_size)
    if data_fingerprint(data) != expected:
        raise ValueError(f"the data in {data_spec.data} are not, or no longer, those that the comparison began with")
    return data


def run_trial(
    trial: Trial, records: Records, device: str | None = None, listener: events.Listener = events.ignore
) -> Record:
    """Train, validate and test; an interrupted run is continued from its checkpoints.

    Args:
        trial: The run to make.
        records: Folder of the records, in which the run's checkpoints are kept.
        device: "cpu" to stay off the GPU; accelerate's choice if None.
        listener: Called with the events of the search.

    Returns:
        The record of the run, which the caller stores.

    Raises:
        ValueError: If the data have changed since the trial was planned.
    """
    seed, skip_bad = trial.settings.seed, trial.data_spec.skip_bad
    spec = trial.data_spec
    data = _checked_data(replace(spec, train_size=None, per_class=None), trial.test_size, trial.data)
    data = split(data, spec.train_size, None, seed, spec.per_class)
    if trial.library == "setfit":
        return _run_setfit(trial, data)
    train, held_out = divide(data.train, data.targets, seed) if trial.held_out else (data.train, None)
    network, reader = trial.model_spec.load(data, seed)
    sets = TrainingSets(*reader.training_sets(train, skip_bad, None, trial.data_spec.flip))
    prior = trial.settings.prior_recipe().make(network, trial.model_spec.head) if trial.clml else None
    settings = decide(trial.settings, network, sets.number, data.targets.num_outputs)
    seconds = {"objective": 0.0, "validation": 0.0, "clml": 0.0}
    record: Record = {
        "key": trial.key,
        "trial": trial.identity(),
        "runs": planned_steps(settings) / max(1, settings.steps),
        "seconds": seconds,
        "diverged": False,
        **dict.fromkeys(("objective", "validation", "clml", "test", "calibrated")),
    }
    start = time.perf_counter()
    try:
        folder = RunFolder(records.work(trial.key))
        result = _train(replace(trial, settings=settings), network, sets, folder, device=device, listener=listener)
    except AllDivergedError:
        seconds["training"] = time.perf_counter() - start
        return {**record, "diverged": True}
    if result.likelihood.needs_targets:  # a run that was read from its folder has no class weights
        result.likelihood.fit(labels_of(sets.plain), data.targets.num_outputs)
    seconds["training"] = result.speed["seconds"]  # over all attempts together
    seconds["objective"] = result.speed["seconds_objective"]
    if held_out is not None:
        held_set = reader.dataset(held_out, skip_bad)
        with _timed(seconds, "validation"):
            record["validation"] = _finite(result.evaluate(held_set, batch_size=BATCH, temperature=1))
        if prior is not None:
            with _timed(seconds, "clml"):
                record["clml"] = _finite(vars(_conditional(trial, result, prior, sets.plain, held_set)))
    test_set = _test_set(trial, reader, data)
    with _timed(seconds, "test"):
        plain = result.raw_predictions(test_set, batch_size=BATCH)
        for name, temperature in {"test": 1.0, "calibrated": result.temperature}.items():
            predictions = result.tempered(plain, temperature)
            record[name] = _finite(measure(result.likelihood, predictions, labels_of(test_set)))
    return {
        **record,
        "tested": len(test_set),  # type: ignore[arg-type]
        "num_data": result.num_data,
        "num_params": result.num_params,
        "objective": result.objective,
        "learning_rate": result.learning_rate,
        "prior_variances": _finite(result.prior_variances),
        "scale": result.scale,
        "temperature": result.temperature,
        "kappa": result.learned.get("kappa"),
        "kl": result.learned.get("kl"),
        "versions": versions(),
    }


def _run_setfit(trial: Trial, data: Data) -> Record:
    """Return the record of a run by the library SetFit, which is not continued if it was interrupted."""
    probabilities, seconds = setfit_probabilities(trial, data)
    assert data.test is not None
    metrics = _finite(compute_metrics("categorical", probabilities, torch.tensor(data.test.labels)))
    return {
        "key": trial.key,
        "trial": trial.identity(),
        "runs": 1.0,
        "seconds": {"objective": 0.0, "validation": 0.0, "clml": 0.0, **seconds},
        "diverged": False,
        **dict.fromkeys(("objective", "validation", "clml")),
        "test": metrics,
        "calibrated": metrics,
        "tested": len(data.test),
        "num_data": len(data.train),
        "versions": versions(),
    }


def _conditional(
    trial: Trial, result: Result, prior: GaussianPrior, plain_set: Dataset, held_set: Dataset
) -> Conditional:
    """Return the conditional marginal likelihood of the held-out examples, under the prior from before the training."""
    assert trial.clml is not None
    prior.set_variances(trial.settings.prior_variances or {})
    device, likelihood = next(result.model.parameters()).device, result.likelihood
    training = in_order(plain_set, trial.settings.batch_size, device)
    posterior = laplace_posterior(
        result.model, prior, training, log_likelihood=0.0, likelihood=copy.deepcopy(likelihood).to(device)
    )

    def outputs() -> Tensor:
        batches = in_order(held_set, BATCH, device)
        return torch.cat([network_output(result.model, inputs) for inputs, _ in batches])

    samples, temperatures = trial.clml
    targets = labels_of(held_set)
    return conditional_likelihood(posterior, outputs, targets, likelihood, samples=samples, temperatures=temperatures)


@contextmanager
def _timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - start


@lru_cache(maxsize=1)
def inspect_model(model_spec: ModelSpec, data_spec: DataSpec, test_size: int | None) -> tuple[nn.Module, str]:
    """Return a comparison's network, and a hash of its weights, its structure and the format of its inputs."""
    network, reader = model_spec.load(read_data(data_spec, test_size), 0)
    reads = {name: value for name, value in reader.as_dict().items() if name != "spec"}
    vocabulary = sorted(reader.tokenizer.get_vocab().items()) if reader.tokenizer is not None else None
    structure = re.sub(r" at 0x[0-9a-f]+", "", repr(network))  # the text of a function contains its address in memory
    digest = hashlib.sha256(repr((structure, reads, vocabulary)).encode())
    for name, value in network.state_dict().items():
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return network, digest.hexdigest()[:16]


def _train(
    trial: Trial,
    network: nn.Module,
    sets: TrainingSets,
    folder: RunFolder,
    *,
    device: str | None,
    listener: events.Listener,
) -> Result:
    with folder.lock():
        if folder.status == "trained":  # an earlier process was killed while testing
            return load(folder.path, network)
        execution = Execution(device, trial.precision)
        about = {"head": trial.model_spec.head, **about_run(trial.settings, execution), "num_data": sets.number}
        run = TrainingRun(
            network=network,
            sets=sets,
            settings=trial.settings,
            execution=execution,
            head=trial.model_spec.head,
            folder=folder,
            resumed=folder.check(trial.settings, about, network.state_dict()),
            about=about,
            listener=listener,
        )
        return run.train()


_stores: dict[str, ImageStore] = {}


def _test_set(trial: Trial, reader: InputReader, data: Data) -> Dataset:
    """Return the test set as this network reads it; images are decoded once for all runs of a process."""
    assert data.test is not None
    if reader.image is None:
        return reader.dataset(data.test)
    skip_bad = trial.data_spec.skip_bad
    form = replace(reader.image, mean=None, std=None)  # the pixels do not depend on them
    key = repr((trial.data, trial.model_spec.model, form, trial.test_size, skip_bad))
    if key not in _stores:
        _stores.clear()
        _stores[key] = ImageStore(data.test, reader.image, skip_bad)
    return ImageSet(_stores[key], reader.image)


def _finite(values: dict[str, float]) -> dict[str, float | None]:
    """Replace infinity, which JSON does not have, by None."""
    return {name: value if math.isfinite(value) else None for name, value in values.items()}
