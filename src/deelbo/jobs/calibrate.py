"""The work of `deelbo calibrate`: how certain the predictions of a finished run are made."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deelbo import events
from deelbo._processes import launched_together
from deelbo.data import Data, load_labelled, split
from deelbo.data.examples import content_of
from deelbo.folds import FoldRuns
from deelbo.jobs.evaluate import same_data
from deelbo.loading import load
from deelbo.report import assess, write_report
from deelbo.result import Result
from deelbo.run_folder import RunFolder
from deelbo.specs import DataSpec, ModelSpec, spec_of_run
from deelbo.training.batches import labels_of
from deelbo.training.calibration import Calibration, held_out_calibration, outputs_of, training_set_calibration
from deelbo.training.device import Execution
from deelbo.training.sets import TrainingSets
from deelbo.training.start import Start

BATCH = 64


@dataclass(frozen=True)
class Source:
    """What a temperature comes from; the training set alone if nothing is given.

    Args:
        folds: Number of runs on parts of the training set.
        fold_steps: Number of steps of each of them; as many as the run has if None.
        held_out: Labelled data that the run was not trained on, as for `deelbo evaluate`.
        training_set: Whether the training set alone may take the place of a calibration by unseen examples.

    Raises:
        ValueError: If they contradict each other, or a number is too small.
    """

    folds: int | None = None
    fold_steps: int | None = None
    held_out: str | None = None
    training_set: bool = False

    def __post_init__(self) -> None:
        if self.training_set and (self.folds is not None or self.held_out is not None):
            raise ValueError("training_set=True contradicts folds and held-out data: choose one of them")
        if self.held_out is not None and self.folds is not None:
            raise ValueError(f"folds={self.folds} contradicts held_out={self.held_out!r}: choose one of them")
        if self.folds is not None and self.folds < 2:
            raise ValueError(f"folds={self.folds}, but it must be at least 2")
        if self.fold_steps is not None and (self.folds is None or self.fold_steps < 1):
            raise ValueError(f"fold_steps={self.fold_steps}: it is a number of steps, and only for folds")


def calibrate_job(
    run: Path,
    source: Source,
    data: str | None = None,
    *,
    device: str | None = None,
    listener: events.Listener = events.ignore,
) -> tuple[Calibration, dict[str, Any] | None]:
    """Calibrate a finished run, test it again if its data have a test set, and write its report again.

    Args:
        run: Folder of the run.
        source: What the temperature comes from.
        data: The data that the run was trained on, if they have moved.
        device: "cpu" to stay off the GPU; accelerate's choice if None. Only for folds.
        listener: Called with the events of the job.

    Returns:
        The calibration, and the assessment on the test set; None if there is none.

    Raises:
        ValueError: If the run is unfinished, its training data are not found or have changed, or a launcher has started
            several processes.
    """
    if launched_together():
        raise ValueError("deelbo calibrate runs in one process; in deelbo finetune, several share the folds")
    folder = RunFolder(run)
    folder.read_finished()  # before the lock makes a folder
    with folder.lock():
        result, about = load(run), folder.read().get("about", {})
        if result.reader is None or "fingerprint" not in about:
            raise ValueError('this run\'s network was made in Python: train it with finetune(..., calibrate="folds=5")')
        job = CalibrationJob(result, folder, device, listener)
        parts = None
        if source.held_out is not None:
            try:
                parts = job.training_data(about, data)
            except (FileNotFoundError, ValueError) as error:
                if data is not None:
                    raise
                listener(events.Note(f"{error}: whether it has the held-out examples is not checked"))
            calibration = job.by_held_out(source.held_out, about, parts)
        else:
            job.check(source)
            parts = job.training_data(about, data)
            calibration = job.by_training_data(parts, about, source)
        result.calibration = calibration
        folder.write_calibration(calibration.as_dict(), calibration.scores)
        assessment = None if parts is None else job.test(parts, about)
        write_report(folder)
        return calibration, assessment


@dataclass
class CalibrationJob:
    """The parts of `calibrate_job`, which share its arguments.

    Args:
        result: The finished run.
        folder: Folder of the run.
        device: "cpu" to stay off the GPU; accelerate's choice if None.
        listener: Called with the events of the job.
    """

    result: Result
    folder: RunFolder
    device: str | None
    listener: events.Listener

    def check(self, source: Source) -> None:
        """Refuse what would be no calibration, or a worse one than there is.

        Raises:
            ValueError: If the training set alone cannot calibrate this run, or would replace something better.
        """
        if "dimension" not in self.result.start:
            raise ValueError(f"{self.folder.path} was trained by a version without calibration: use held-out data")
        if source.folds is not None:
            return
        likelihood = self.result.likelihood
        if not likelihood.scale_free:
            raise ValueError(f"a {likelihood.task} is not calibrated by its training set: use folds=5 or held-out data")
        if self.result.fitted_classifier:
            raise ValueError(
                "the classifier of this run was fitted to features (method probe, pairs, or a blend), and the training "
                "set tells nothing more about its probabilities: use folds=5 or held-out data"
            )
        if self.result.calibration.unseen and not source.training_set:
            raise ValueError(
                f"{self.folder.path} is calibrated by unseen examples already, which is better; training_set=True "
                "calibrates it by the training set alone again"
            )

    def training_data(self, about: dict[str, Any], data: str | None) -> Data:
        """Return the data that the run was trained on.

        Raises:
            FileNotFoundError: If they are not found.
            ValueError: If they have changed.
        """
        spec = spec_of_run(DataSpec, about)
        spec = spec if data is None else replace(spec, data=data)
        try:
            parts = split(spec.read(), spec.train_size, spec.test_fraction, self.result.settings.seed, spec.per_class)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{error}; data=PATH says where the training data are now") from error
        if parts.fingerprint() != about["fingerprint"]:
            raise ValueError(f"the training examples in {spec.data} are not those that the run was trained on")
        return parts

    def by_training_data(self, parts: Data, about: dict[str, Any], source: Source) -> Calibration:
        """Return the calibration by the training set alone, or by folds of it."""
        assert self.result.reader is not None
        settings, spec = self.result.settings, spec_of_run(ModelSpec, about)
        progress = events.stage(self.listener, "reading training images")
        sets = TrainingSets(*self.result.reader.training_sets(parts.train, about["skip_bad"], progress, about["flip"]))
        execution = Execution(self.device, about["precision"])
        if source.folds is not None:
            return FoldRuns(
                self.result,
                spec.load(parts, settings.seed)[0],
                sets,
                source.folds,
                source.fold_steps,
                head=spec.head,
                folder=self.folder,
                execution=execution,
                listener=self.listener,
            ).calibrate()
        likelihood = self.result.likelihood
        if likelihood.needs_targets and likelihood.has_classes:
            likelihood.fit(labels_of(sets.plain), len(parts.targets.names))
        found = outputs_of(self.result.model, sets.plain, BATCH, execution.accelerator(None).autocast)
        return training_set_calibration(*found, likelihood, Start(**self.result.start), self.result.num_data)

    def by_held_out(self, data: str, about: dict[str, Any], parts: Data | None) -> Calibration:
        """Return the calibration by labelled data that the run was not trained on.

        Args:
            data: Labelled data, as for `deelbo evaluate`.
            about: Facts about the run.
            parts: The data that the run was trained on, if they were found.

        Raises:
            ValueError: If some of these are training examples.
        """
        reader = self.result.reader
        assert reader is not None
        if same_data(about, data):
            raise ValueError(f"held_out={data!r}: the run was trained on these examples")
        columns = {name: about.get(name) or default for name, default in _COLUMNS.items()}
        examples = load_labelled(data, reader.kind, reader.targets, data_dir=about.get("data_dir"), **columns)
        if parts is not None:
            seen = {content_of(item) for item in parts.train.inputs}
            if known := sum(content_of(item) in seen for item in examples.inputs):
                raise ValueError(f"held_out={data!r}: the run was trained on {known} of these {len(examples)} examples")
        if data == about["data"] or Path(data).resolve() == Path(about["data"]).resolve():
            self.listener(events.Note(f"the test part of {data} is used; it no longer tells how good the run is"))
        dataset = reader.dataset(examples, about["skip_bad"], events.stage(self.listener, "reading"))
        accelerator = Execution(self.device, about["precision"]).accelerator(None)
        found = outputs_of(self.result.model, dataset, BATCH, accelerator.autocast, len(dataset))
        own = self.result.calibration  # assumed where the examples are too few to tell
        center = own.temperature if own.source == "training set" else 1.0
        return held_out_calibration(*found, self.result.likelihood, center)

    def test(self, parts: Data, about: dict[str, Any]) -> dict[str, Any] | None:
        """Test the run again, if its data have a test set."""
        assert self.result.reader is not None
        if parts.test is None:
            return None
        test_set = self.result.reader.dataset(parts.test, about["skip_bad"])
        assessment = assess(self.result, test_set, 0, events.stage(self.listener, "testing"))
        self.folder.write_test_results(assessment, self.folder.read().get("skipped", []))
        return assessment


_COLUMNS = {"text_column": "text", "label_column": "label"}
