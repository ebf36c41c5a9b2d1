r"""Calibration by cross-validation: runs on parts of the training set tell how certain the whole run should be.

The training set is divided into K folds. For each, the pretrained network is trained on the others, with the learning
rate of the run and as many steps, or fewer. Such a network has seen less data and may be trained less far, so its
logits differ in size from the run's. What is taken over is how wrong the free factor s* is on these data: with the
factors s*_k of the folds, each from its own training examples, and rho the factor with the best likelihood of all
left-out outputs s*_k z, the run's factor is rho s* (docs/calibration.md).
"""

from __future__ import annotations

import copy
import functools
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, default_collate

from deelbo import events
from deelbo._head import Head
from deelbo._processes import from_first
from deelbo._seeds import mix, own_randomness
from deelbo.result import Result
from deelbo.run_folder import RunFolder
from deelbo.training.batches import labels_of, prepare
from deelbo.training.calibration import Calibration, free_factor, held_out_calibration, outputs_of
from deelbo.training.device import Execution
from deelbo.training.sets import TrainingSets
from deelbo.training.settings import Settings
from deelbo.training.start import Start
from deelbo.training_run import TrainingRun


class Part(Dataset):
    """Some examples of a dataset, collated as the dataset does it.

    Args:
        whole: The dataset.
        indices: Indices of the examples.
    """

    def __init__(self, whole: Dataset, indices: Sequence[int]) -> None:
        self.whole, self.indices = whole, list(indices)
        self.collate = getattr(whole, "collate", default_collate)
        if hasattr(whole, "skip"):
            self.skip = lambda index: whole.skip(self.indices[index])

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Any:
        return self.whole[self.indices[index]]

    def prepare(self, indices: Iterable[int]) -> None:
        """Let the dataset begin to decode examples that will be needed soon."""
        prepare(self.whole, [self.indices[i] for i in indices])


def fold_of_each(strata: Tensor, folds: int, seed: int) -> Tensor:
    """Return the number of the fold that each example belongs to; classes and folds are as even as they can be.

    Args:
        strata: Class of each example, or any number that folds should share evenly.
        folds: Number of folds.
        seed: Seed of the division.
    """
    order = torch.randperm(len(strata), generator=torch.Generator().manual_seed(mix(seed, 5)))
    order = order[strata[order].sort(stable=True).indices]  # class by class, at random within a class
    fold = torch.empty(len(strata), dtype=torch.long)
    fold[order] = torch.arange(len(strata)) % folds
    return fold


def check_folds(folds: int, number: int) -> None:
    """Refuse folds that cannot be trained, before anything is trained.

    Args:
        folds: Number of folds.
        number: Number of training examples.

    Raises:
        ValueError: If there are too few examples.
    """
    if number < 2 * folds:
        raise ValueError(f"folds={folds}: there are {number} training examples, too few for that")


@dataclass
class FoldRuns:
    """Trains the folds of a finished run.

    Args:
        result: The finished run.
        network: A network of the same architecture with the weights that the run started from; it is changed.
        sets: The training examples of the run.
        folds: Number of folds.
        steps: Number of steps of a fold; as many as the run has if None.
        head: Name of the classifier; found automatically in most networks if None.
        folder: Folder of the run, in which interrupted folds are continued; None to keep everything in memory.
        execution: Device and precision.
        listener: Called with the events of training.
        start_hash: Hash of the weights and examples that the run started from, so that folds of others are not used.
    """

    result: Result
    network: nn.Module
    sets: TrainingSets
    folds: int
    steps: int | None = None
    head: Head = None
    folder: RunFolder | None = None
    execution: Execution = field(default_factory=Execution)
    listener: events.Listener = events.ignore
    start_hash: str = ""

    def calibrate(self) -> Calibration:
        """Return the calibration of the run, with scores for prediction sets.

        Raises:
            ValueError: If there are too few examples, or a fold's network gives no finite numbers.
            AllDivergedError: If a fold diverged.
        """
        check_folds(self.folds, self.sets.number)
        begin, likelihood = time.perf_counter(), self.result.likelihood
        self._announce()
        found = [self.left_out(k) for k in range(self.folds)]
        own = self._factor(self.result, self.sets.plain)
        outputs = torch.cat([o["factor"] * o["outputs"] for o in found])
        calibration = held_out_calibration(outputs, torch.cat([o["targets"] for o in found]), likelihood)
        return replace(
            calibration,
            temperature=calibration.temperature / own,
            source="folds",
            folds=self.folds,
            seconds=time.perf_counter() - begin,
        )

    @functools.cached_property
    def _start(self) -> tuple[dict[str, Tensor], Tensor]:
        """The weights that every fold starts from, and the fold of each example."""
        targets, likelihood = labels_of(self.sets.plain), self.result.likelihood
        if likelihood.needs_targets and likelihood.has_classes:  # class weights, which a run from a folder has not
            likelihood.fit(targets, len(self.result.names or []) or int(targets.max()) + 1)
        strata = targets if likelihood.name == "categorical" else torch.zeros(len(targets), dtype=torch.long)
        fold = fold_of_each(strata, self.folds, self.result.settings.seed)
        return copy.deepcopy(self.network.state_dict()), fold

    @property
    def _transfers(self) -> bool:
        """Whether outputs have a free factor: there are logits of a classifier that training steps have made."""
        return self.result.likelihood.scale_free and not self.result.fitted_classifier

    @property
    def _settings(self) -> Settings:
        settings, rate = self.result.settings, self.result.learning_rate
        steps = settings.steps if self.steps is None else self.steps
        return replace(settings, learning_rates=(rate,), lr_search="grid", steps=steps, blend=self.result.blend)

    def _announce(self) -> None:
        size, steps = min(self._settings.batch_size, self.sets.number), self._settings.steps
        summary = f"calibration: {self.folds} folds, {steps} steps of {size} each"
        self.listener(events.TrainingPlanned(summary, self.folds * steps, size))

    def left_out(self, k: int) -> dict[str, Tensor]:
        """Train without fold k, unless its folder has what it found.

        Returns:
            "outputs" and "targets" of the examples that were left out, and the free "factor" of the network.
        """
        settings, (initial, fold) = self._settings, self._start
        self.network.load_state_dict(initial)
        about = {"fold": k, "folds": self.folds, "precision": self.execution.precision, "start_hash": self.start_hash}
        whole = self.folder
        if whole is not None and (kept := from_first(lambda: whole.read_fold(k, settings, about))) is not None:
            return kept
        inside, outside = (fold != k).nonzero().flatten().tolist(), (fold == k).nonzero().flatten().tolist()
        sets = TrainingSets(Part(self.sets.augmented, inside), Part(self.sets.plain, inside))
        folder = None if self.folder is None else self.folder.fold(k)
        resumed = False
        if folder is not None:
            resumed = from_first(functools.partial(folder.check, settings, about, self.network.state_dict()))
        run = TrainingRun(
            network=self.network,
            sets=sets,
            settings=settings,
            execution=replace(self.execution, log=None),
            head=self.head,
            folder=folder,
            resumed=resumed,
            about=about,
            listener=lambda event: None if isinstance(event, events.Note) else self.listener(event),
        )
        trained = run.train()
        factor = self._factor(trained, sets.plain)
        outputs, targets = self._outputs_of(trained.model, Part(self.sets.plain, outside))
        if (units := trained.likelihood.units()) is not None:  # to the units of the run's own outputs
            location, spread = self.result.likelihood.units() or units
            outputs = (units[0] + units[1] * outputs.reshape(len(outputs), -1) - location) / spread
        found = {"outputs": outputs, "targets": targets, "factor": torch.tensor(factor)}
        if self.folder is not None and self.execution.accelerator(None).is_main_process:
            self.folder.write_fold(k, settings, about, found)
        return found

    def _factor(self, result: Result, plain: Dataset) -> float:
        """Return the free factor of a run, from its own training examples; 1 where nothing is taken over.

        Like the free temperature it never makes more certain: a run that is far from fitting its examples is as it is.
        """
        if not self._transfers:
            return 1.0
        found = self._outputs_of(result.model, plain)
        return free_factor(*found, result.likelihood, Start(**result.start), result.num_data)

    def _outputs_of(self, network: nn.Module, dataset: Dataset) -> tuple[Tensor, Tensor]:
        accelerator = self.execution.accelerator(None)
        number = len(dataset)  # type: ignore[arg-type]
        with own_randomness(accelerator.device):
            return outputs_of(network, dataset, self.result.settings.batch_size, accelerator.autocast, number)
