"""Trained networks that are kept, for figures that look into them; other entries need the records of `compare` only."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from deelbo._modules import eval_mode
from deelbo.compare.problem import RECORD
from deelbo.compare.running import read_data
from deelbo.data import Data, split
from deelbo.loading import load
from deelbo.models import InputReader
from deelbo.objective import DataEmphasizedELBO
from deelbo.priors import GaussianPrior
from deelbo.reproduce.costs import laptop_seconds, paper_seconds
from deelbo.reproduce.plan import PlannedRun
from deelbo.reproduce.scales import DATASETS, Scale
from deelbo.reproduce.setup import Setup
from deelbo.reproduce.study import Study
from deelbo.result import Result
from deelbo.run_folder import RunFolder
from deelbo.run_settings import about_run
from deelbo.training.batch_norm import refresh_batch_norm
from deelbo.training.batches import even_parts, fetch, in_order, network_output
from deelbo.training.device import Execution
from deelbo.training.search import planned_steps
from deelbo.training.sets import TrainingSets
from deelbo.training.settings import Settings
from deelbo.training_run import TrainingRun


@dataclass(frozen=True)
class Task:
    """The task of Fig. 1 and of those that use its networks: one training set of a dataset, with L2-SP.

    Args:
        network: Name of the network in the paper.
        dataset: Name of the dataset.
    """

    network: str = "ResNet-50"
    dataset: str = "cifar10"

    @property
    def kind(self) -> str:
        """Kind of the inputs."""
        return DATASETS[self.dataset].kind

    def settings(self, scale: Scale, **changes: Any) -> Settings:
        """Return the settings of a run, those of the comparisons unless changed."""
        options = scale.options[self.kind]
        shared: dict[str, Any] = {name: options[name] for name in ("learning_rates", "lr_search") if name in options}
        chosen: dict[str, Any] = {**scale.settings[self.kind], **shared, "seed": scale.seeds[0], **changes}
        return Settings(**chosen)

    def planned_run(self, scale: Scale, key: str, **changes: Any) -> PlannedRun:
        """Return a run on this task for a plan.

        Args:
            scale: The scale.
            key: What makes it the same run as one of another entry.
            changes: Settings that differ from those of the comparisons.
        """
        settings = self.settings(scale, **changes)
        problem = Study(self.network, self.dataset).planned_problem(scale, scale.kept_size, scale.seeds[0])
        trial = replace(problem.trial(), settings=settings)
        return PlannedRun(
            network=self.network,
            dataset=self.dataset,
            prior="L2-SP",
            method=settings.method,
            size=scale.kept_size,
            seed=settings.seed,
            key=key,
            trial=trial,
            runs=planned_steps(settings) / settings.steps,
            seconds=paper_seconds(self.network, trial) if scale.name == "paper" else laptop_seconds(self.kind, trial),
        )


@dataclass
class Prepared:
    """A network at its initial state with its examples.

    Args:
        network: The network.
        reader: Reader of its inputs.
        data: Training and test examples.
        sets: The training examples as the network takes them.
        prior: Prior L2-SP around the initial weights.
        model: Name of the model.
    """

    network: nn.Module
    reader: InputReader
    data: Data
    sets: TrainingSets
    prior: GaussianPrior
    model: str

    def folder(self, setup: Setup, name: str, settings: Settings) -> Path:
        """Return the folder of a run: OUT/runs/NAME, with a hash of what its result depends on.

        Args:
            setup: What the user has.
            name: Name of the run.
            settings: Settings of the run.
        """
        depends_on = [RECORD, self.model, self.reader.as_dict(), self.data.fingerprint(), settings.as_dict()]
        digest = hashlib.sha256(json.dumps(depends_on, sort_keys=True, default=str).encode()).hexdigest()
        return setup.out / "runs" / f"{name}-{digest[:8]}"

    @property
    def test_set(self) -> Dataset:
        """The test examples as the network takes them."""
        assert self.data.test is not None
        return self.reader.dataset(self.data.test)


def prepare(task: Task, setup: Setup, settings: Settings) -> Prepared:
    """Read the data of a task and load its network.

    Args:
        task: The task.
        setup: What the user has.
        settings: Settings of the run, whose seed chooses the training set.
    """
    spec, model = setup.data_spec(task.dataset), setup.model_spec(task.network, task.kind)
    data = split(read_data(spec, setup.scale.test_size), setup.scale.kept_size, None, settings.seed)
    network, reader = model.load(data, settings.seed)
    sets = TrainingSets(*reader.training_sets(data.train, spec.skip_bad, None, spec.flip))
    prior = settings.prior_recipe().make(network, model.head)
    return Prepared(network, reader, data, sets, prior, model=model.model)


@dataclass
class KeptNetwork:
    """A trained network with its posterior, prior and training examples.

    Args:
        result: The finished run.
        prepared: What it was made from; its network has the trained weights now.
        objective: The run's objective around the trained weights.
    """

    result: Result
    prepared: Prepared
    objective: DataEmphasizedELBO

    @property
    def test_accuracy(self) -> float:
        """Mean of the accuracies of the classes, on the test set."""
        return self.result.evaluate(self.prepared.test_set, temperature=1)["balanced_accuracy"]

    def log_likelihood(self) -> Tensor:
        """Return sum_i log p(y_i | theta) of the training set at the current weights, in eval mode.

        Where training used the statistics of batches, each draw gets statistics of its own, as in the search for the
        learning rate.
        """
        network, sets, settings = self.result.model, self.prepared.sets, self.result.settings
        device = next(network.parameters()).device
        likelihood, total = self.result.likelihood.to(device), torch.zeros((), dtype=torch.float64)
        if self.result.start.get("batch_norm") == "batch":
            parts = even_parts(list(range(sets.number)), settings.batch_size, settings.seed)
            refresh_batch_norm(network, (fetch(sets.plain, part, device)[0] for part in parts))
        with torch.no_grad(), eval_mode(network):
            for inputs, labels in in_order(sets.plain, settings.batch_size, device):
                total += likelihood.log_likelihood(network_output(network, inputs).float(), labels).double().cpu()
        return total


def keep(task: Task, setup: Setup, name: str, **changes: Any) -> KeptNetwork:
    """Train a network, continue its training, or read it if it is trained already; it is kept in OUT/runs.

    Args:
        task: The task.
        setup: What the user has.
        name: Name of the run.
        changes: Settings that differ from those of the comparisons, such as the method.
    """
    settings = task.settings(setup.scale, pairs=False, blend=1.0, **changes)  # as it was trained: the paper has neither
    setup.announce(f"{task.network} ({setup.model_spec(task.network, task.kind).model}), {settings.method}, kept")
    prepared = prepare(task, setup, settings)
    network, sets = prepared.network, prepared.sets
    folder, execution = RunFolder(prepared.folder(setup, name, settings)), Execution(setup.device)
    about = {**about_run(settings, execution), "num_data": sets.number}
    with folder.lock():
        if folder.status == "trained":
            result = load(folder.path, network)
        else:
            run = TrainingRun(
                network=network,
                sets=sets,
                settings=settings,
                execution=execution,
                folder=folder,
                resumed=folder.check(settings, about, network.state_dict()),
                about=about,
                listener=setup.listener,
                calibrated=False,
            )
            result = run.train()
    assert result.posterior is not None
    objective = DataEmphasizedELBO(result.posterior, prepared.prior, sets.number, result.learned["kappa"])
    prepared.prior.set_variances(result.prior_variances)
    return KeptNetwork(result, prepared, objective)


def keep_pair(setup: Setup, task: Task | None = None) -> tuple[KeptNetwork, KeptNetwork]:
    """Return the two networks of Fig. 1: trained on the ELBO, and on the DE-ELBO."""
    task = task or Task()
    return keep(task, setup, "elbo", method="elbo"), keep(task, setup, "de-elbo", method="de-elbo")


def planned_pair(scale: Scale, task: Task | None = None) -> list[PlannedRun]:
    """Return the runs of the two networks for a plan."""
    task = task or Task()
    return [task.planned_run(scale, f"kept, {method}", method=method) for method in ("elbo", "de-elbo")]
