"""A training run: from a network and its examples, by a search over learning rates, to a `Result`."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from deelbo import events
from deelbo._head import Head
from deelbo._modules import trainable, unwrap
from deelbo._processes import copy_from_first, from_first, shared_errors
from deelbo._seeds import mix, own_randomness
from deelbo._wording import counted
from deelbo.errors import AllDivergedError
from deelbo.likelihoods import LIKELIHOODS, Likelihood
from deelbo.models import InputReader
from deelbo.posteriors import DiagonalPosterior
from deelbo.result import Result
from deelbo.run_folder import RunFolder
from deelbo.run_settings import decide
from deelbo.run_timing import Timing
from deelbo.training.batch_norm import batch_norm_layers, has_statistics
from deelbo.training.batches import Inputs, even_parts, fetch, labels_of, to_device
from deelbo.training.blend import blend, describe_blend
from deelbo.training.calibration import Calibration, outputs_of, training_set_calibration
from deelbo.training.device import Execution
from deelbo.training.history import speed_of
from deelbo.training.last_layer import LastLayer, usual_margin
from deelbo.training.loop import Candidate
from deelbo.training.method import METHODS, Method, MethodInputs
from deelbo.training.pipeline import StepBatches
from deelbo.training.search import MemoryStore, Search, Store
from deelbo.training.sets import TrainingSets
from deelbo.training.settings import Settings
from deelbo.training.start import MOST_EXAMPLES, Start, Starter
from deelbo.training.time_budget import Plan, Work

DOUBTFUL = (
    "before training, features of this network predicted these labels no better than guessing: if the labels are wrong "
    "or the task cannot be learned, the probabilities are too certain, and only a calibration by folds would show it"
)

OTHER_NUMBER = (
    "the run began with {before} and goes on with {number}: it takes the same batches, but its result is not that of "
    "either number to the last bit"
)


@dataclass
class TrainingRun:
    """Trains a network: the search over learning rates, with its state in a folder or in memory.

    Args:
        network: The network with its pretrained weights.
        sets: Training examples.
        settings: Settings of the run; what they leave open is decided by `decide`.
        execution: Device, precision, tracker and interval of checkpoints.
        head: Name of the classifier; found automatically in most networks if None.
        folder: Folder of the run, already checked and locked; None to keep everything in memory.
        resumed: Whether an unfinished run in the folder is continued.
        about: Facts about the run, beside its settings, that `run.json` keeps.
        reader: Reader of the network's inputs; stored so that the run's folder is enough to use the network.
        listener: Called with the events of the search.
        calibrated: Whether the result is calibrated on its training set.
        timing: Measures the run before it starts, says how long it takes, and may lay it out in a given time; None to
            train the settings' number of steps without a word.
    """

    network: nn.Module
    sets: TrainingSets
    settings: Settings
    execution: Execution = field(default_factory=Execution)
    head: Head = None
    folder: RunFolder | None = None
    resumed: bool = False
    about: Mapping[str, Any] = field(default_factory=dict)
    reader: InputReader | None = None
    listener: events.Listener = events.ignore
    calibrated: bool = True
    timing: Timing | None = None
    _plan: Plan | None = field(default=None, init=False)

    def train(self) -> Result:
        """Train all candidates and return the best one.

        Raises:
            ValueError: If the network does not fit the data or the settings, or a given time is too short.
            AllDivergedError: If every learning rate diverged.
        """
        self._accelerator = self.execution.accelerator(None if self.folder is None else self.folder.path)
        network = self.network.to(self._accelerator.device)
        self._note_processes()
        with shared_errors():
            self._check_batch()
            self._likelihood, self._num_outputs = self._make_likelihood(network)
            # Equal ones where the caller has decided, as it must to compare them with those of an unfinished run.
            self.settings = decide(self.settings, network, self.sets.number, self._num_outputs, self.listener)
            self._recipe = self.settings.prior_recipe()
            self._warn(self._make_method(network))  # so that it refuses bad settings before anything is written
            self._recipe.start(network, self.head)
        several = self._accelerator.num_processes > 1
        self._called = self._accelerator.prepare_model(network) if several else network
        workers = self.execution.workers
        self._batches = StepBatches(
            self.sets.augmented, self.settings, self._accelerator, workers, listener=self.listener
        )
        try:
            return self._train(network)
        finally:
            self._batches.close()

    def _train(self, network: nn.Module) -> Result:
        """Measure, start, search."""
        self._plan = self._first_plan()
        # One process decides: others may compute other last bits, and a classifier may be new in each of them.
        initial, self._start = from_first(lambda: self._initial_state(network))
        if not self.resumed:
            self._begin(initial)
        self._likelihood.restore(self._start.likelihood)
        if self._start.head_start != self.settings.head_start:
            self.listener(events.Note("the classifier starts at random: the network does not end with a linear layer"))
        if (worth := self._start.describe(self.settings.likelihood)) is not None:
            self.listener(events.Note(worth))
        if self.execution.log is not None:
            self._accelerator.init_trackers("log")
        try:
            return self._search(network, initial)
        finally:
            if self.execution.log is not None:
                self._accelerator.end_training()

    def _check_batch(self) -> None:
        size, number = min(self.settings.batch_size, self.sets.number), self._accelerator.num_processes
        if self.settings.steps and size < number:
            raise ValueError(f"a batch of {size} is too small for {number} processes: each needs an example")

    def _note_processes(self) -> None:
        """Note the number of processes, and tell the user if a run is continued with another one."""
        number = self._accelerator.num_processes
        if self.folder is not None and self.resumed:
            before = from_first(self.folder.read).get("about", {}).get("processes", number)
            if before != number:
                self.listener(events.Note(OTHER_NUMBER.format(before=counted(before, "process"), number=number)))
        self.about = {**self.about, "processes": number}

    def _make_likelihood(self, network: nn.Module) -> tuple[Likelihood, int]:
        few = self.sets.first_outputs(network, self._accelerator)
        likelihood = LIKELIHOODS[self.settings.likelihood].for_training(self.settings.class_weights)
        likelihood.check(few.outputs, few.labels)
        num_outputs = few.outputs.numel() // len(few.outputs)
        if likelihood.needs_targets:
            likelihood.fit(labels_of(self.sets.plain), num_outputs)
        return likelihood.to(self._accelerator.device), num_outputs

    def _make_method(self, network: nn.Module, likelihood: Likelihood | None = None) -> Method:
        """Return the method for a network at its initial state."""
        trainable(unwrap(network))  # refuses weights in bfloat16, which are for loops of one's own
        inputs = MethodInputs(
            network=network,
            prior=self._recipe.make(network, self.head),
            likelihood=likelihood or self._likelihood,
            num_data=self.sets.number,
            num_outputs=self._num_outputs,
            settings=self.settings,
        )
        return METHODS[self.settings.method].make(inputs)

    def _warn(self, method: Method) -> None:
        if method.posterior is None:  # a point estimate has no kappa
            return
        num_params = sum(group.num_params for group in method.prior.named_groups().values())
        kappa = method.objective_scale / self.sets.number
        found = self._likelihood.warnings(kappa, num_params, self.sets.number, self._num_outputs)
        for warning in [*method.warnings(), *found]:
            warnings.warn(warning, stacklevel=4)

    def _initial_state(self, network: nn.Module) -> tuple[dict[str, Tensor], Start]:
        """Return the weights that every candidate starts from; those of an interrupted run from its folder."""
        if self.folder is not None and self.resumed:
            initial, start = self.folder.initial_state()
            return initial, Start(**start)
        begin = time.perf_counter()
        starter = self._starter(network)
        with own_randomness(self._accelerator.device):
            prepared = starter.prepare(self.settings.batch_norm, self.settings.head_start)
        self._check_classifier(prepared.classifier)
        likelihood = {name: value.tolist() for name, value in starter.likelihood.state_dict().items()}
        prepared = replace(prepared, seconds=time.perf_counter() - begin, likelihood=likelihood)
        initial = copy.deepcopy(network.state_dict())
        if self._accelerator.num_processes > 1:
            initial = to_device(initial, torch.device("cpu"))
        return initial, prepared

    def _begin(self, initial: dict[str, Tensor]) -> None:
        """Fix the number of steps if a time is given, and write down what was decided before the first one."""
        if self.timing is not None and self.timing.time is not None:
            batch_norm = self._start.batch_norm
            self._plan = self.timing.lay_out(
                self._work(batch_norm), lambda: self._measured_candidate(batch_norm), self._accelerator
            )
            self.settings = replace(self.settings, steps=self._plan.steps)
            self._announce(self._plan.seconds)
        if (folder := self.folder) is not None:
            start = self._start.as_dict()
            from_first(lambda: folder.begin(self.settings, self.about, initial, start, plan=self._plan))

    def _first_plan(self) -> Plan | None:
        """Measure a run whose steps are given, and say how long it takes; of a continued run return its plan."""
        if self.resumed:
            return None if self.folder is None else self.folder.read_plan()
        if self.timing is None or self.timing.time is not None:  # a given time is laid out just before the first step
            return None
        batch_norm = self.settings.batch_norm
        likely = batch_norm
        if batch_norm == "auto":
            likely = "frozen" if has_statistics(unwrap(self.network)) else "batch"
        plan = self.timing.estimate(self._work(batch_norm), lambda: self._measured_candidate(likely))
        self._announce(plan.seconds)
        return plan

    def _measured_candidate(self, batch_norm: str) -> Candidate:
        """Return a candidate that takes a few steps to see how long they take."""
        return self._candidate(min(self.settings.learning_rates), batch_norm)

    def _work(self, batch_norm: str) -> Work:
        assert self.timing is not None
        return Work(
            settings=self.settings,
            num_data=self.sets.number,
            batch_norm=batch_norm if batch_norm_layers(unwrap(self.network)) else "",
            test_examples=self.timing.test_examples,
            folds=self.timing.folds,
            calibrated=self.calibrated,
            reported=self.timing.reported,
        )

    def _announce(self, seconds: float | None) -> None:
        assert self.timing is not None
        name = type(self.network).__name__ if self.reader is None else self.reader.spec
        weights = sum(p.numel() for p in self.network.parameters() if p.requires_grad)
        work = self._work(self.settings.batch_norm)
        self.timing.announce(f"{name}, {weights:,} weights", work, seconds, self.listener)

    def _check_classifier(self, classifier: str) -> None:
        """Raise an error, before anything is written, if no classifier can be fitted at the end."""
        for name, wanted in (("pairs", bool(self.settings.pairs)), ("blend", self.settings.blend != 1)):
            given = f"{name}={getattr(self.settings, name)}"
            if wanted and self.settings.likelihood != "categorical":
                raise ValueError(f"{given} needs classes; the task is {self._likelihood.task}")
            if wanted and not classifier:
                raise ValueError(f"{given} needs a network that ends with a linear layer, its classifier")

    def _starter(self, network: nn.Module) -> Starter:
        settings, device = self.settings, self._accelerator.device
        order = torch.randperm(self.sets.number, generator=torch.Generator().manual_seed(mix(settings.seed, 4)))
        number = self.sets.number if settings.head_start == "probe" else MOST_EXAMPLES
        parts = even_parts(order[:number].tolist(), settings.batch_size, settings.seed)

        def batches() -> Iterator[tuple[Inputs, Tensor]]:
            for part in parts:
                yield fetch(self.sets.plain, part, device)

        return Starter(
            network,
            copy.deepcopy(self._likelihood).cpu(),
            batches,
            self._num_outputs,
            self.head,
            self._accelerator.autocast,
        )

    def _search(self, network: nn.Module, initial: dict[str, Tensor]) -> Result:
        accelerator = self._accelerator
        last_layer = None
        if self._start.classifier:
            layer = network.get_submodule(self._start.classifier)
            assert isinstance(layer, nn.Linear)
            last_layer = LastLayer(layer, usual_margin(self._start.information))

        def make_candidate(rate: float) -> Candidate:
            network.load_state_dict(initial)
            return self._candidate(rate, self._start.batch_norm, last_layer)

        writes = accelerator.is_main_process
        store: Store = MemoryStore() if self.folder is None else self.folder.checkpoints(writes)
        if self.timing is not None and self.resumed:
            done = sum(note["clock"]["number"] for note in self._notes(store))
            self._announce(None if self._plan is None else self._plan.seconds_left(done))
        search = Search(self.settings, make_candidate, store, self.execution.checkpoint_seconds, self.listener)
        try:
            with own_randomness(accelerator.device):
                rate, state = search.run()
        except AllDivergedError:
            if self.folder is not None and writes:
                self.folder.abandon()
            raise
        winner = make_candidate(rate)
        winner.restore(state)
        share = self._blend(winner, initial)
        copy_from_first(network.buffers())  # each process has its own running averages of batch normalisation
        for remark in winner.likelihood.remarks():
            warnings.warn(remark, stacklevel=6)
        result = self._result(winner, share, search.values, self._notes(store))
        if self.calibrated and not result.fitted_classifier:  # one that was fitted to given features needs none
            result.calibration = self._calibration(network, winner.likelihood)
        accelerator.wait_for_everyone()
        if self.folder is not None and writes:
            result.write(self.folder, self.about)
        return result

    def _blend(self, winner: Candidate, initial: Mapping[str, Tensor]) -> float:
        """Take the network back towards its pretrained weights, if it is to be; return how far from them it lies."""
        if self.settings.blend == 1:
            return 1.0
        share = blend(winner, initial, self.settings.blend)
        if self.settings.blend is None:
            self.listener(events.Note(describe_blend(share)))
        return share

    def _notes(self, store: Store) -> list[dict[str, Any]]:
        """Return what the states of the candidates say beside their tensors."""
        return [stored[1] for rate in self.settings.learning_rates if (stored := store.get(rate)) is not None]

    def _candidate(self, rate: float, batch_norm: str, last_layer: LastLayer | None = None) -> Candidate:
        """Return the candidate of a learning rate for the network as it is."""
        likelihood = copy.deepcopy(self._likelihood)
        return Candidate(
            self._called,
            method=self._make_method(self._called, likelihood),
            likelihood=likelihood,
            batches=self._batches,
            plain_set=self.sets.plain,
            learning_rate=rate,
            settings=self.settings,
            accelerator=self._accelerator,
            batch_norm=batch_norm,
            last_layer=last_layer,
            objective_examples=None if self._plan is None else self._plan.objective_examples,
        )

    def _result(
        self, winner: Candidate, share: float, values: dict[int, dict[float, float]], notes: list[dict[str, Any]]
    ) -> Result:
        """Sum up a search: its best candidate and where it lies after a blend, and the histories of all."""
        network, method, clocks = unwrap(winner.network), winner.method, [note["clock"] for note in notes]
        return Result(
            model=network.eval(),
            settings=self.settings,
            likelihood=winner.likelihood.cpu(),
            learning_rate=winner.learning_rate,
            objective=values[self.settings.steps][winner.learning_rate],
            objective_scale=method.objective_scale,
            prior_variances=method.prior.variances,
            learned=_beside_variances({**winner.likelihood.learned(), **method.learned(), "blend": share}),
            history=[row for note in notes for row in note["history"]],
            values=values,
            num_data=self.sets.number,
            num_params=sum(p.numel() for p in trainable(network).values()),
            speed={**speed_of(clocks, self._start.seconds), "workers": self._batches.workers},
            reader=self.reader,
            start=self._start.as_dict(),
            plan=None if self._plan is None else self._plan.as_dict(),
            scales=method.posterior.scales if isinstance(method.posterior, DiagonalPosterior) else None,
        )

    def _calibration(self, network: nn.Module, likelihood: Likelihood) -> Calibration:
        """Return the calibration on the training set."""
        begin = time.perf_counter()
        with own_randomness(self._accelerator.device):
            found = outputs_of(network, self.sets.plain, self.settings.batch_size, self._accelerator.autocast)
        calibration = training_set_calibration(*found, likelihood, self._start, self.sets.number)
        if self._start.doubtful:
            self.listener(events.Note(DOUBTFUL))
        return replace(calibration, seconds=time.perf_counter() - begin)


def _beside_variances(learned: dict[str, float]) -> dict[str, float]:
    """Return the learned numbers without the prior variances, which a result has in a field of their own."""
    return {name: value for name, value in learned.items() if not name.startswith("variance_")}
