"""The work of `deelbo finetune`: from data and the name of a model to a finished run with test results and report."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import nn

from deelbo import events
from deelbo._processes import from_first, is_first, lost_processes, shared_errors
from deelbo._wording import counted
from deelbo.data import Data, split
from deelbo.data.images import ImageSet
from deelbo.data.texts import TextSet
from deelbo.folds import check_folds
from deelbo.jobs.calibrate import CalibrationJob, Source
from deelbo.loading import load
from deelbo.models import InputReader
from deelbo.report import assess, write_report
from deelbo.result import Result
from deelbo.run_folder import RunFolder
from deelbo.run_settings import about_run, decide
from deelbo.run_timing import Timing, check_time
from deelbo.specs import DataSpec, ModelSpec
from deelbo.training.calibration import parse_calibration
from deelbo.training.device import Execution
from deelbo.training.sets import TrainingSets
from deelbo.training.settings import Settings, settings_for
from deelbo.training_run import TrainingRun

Metrics = dict[str, float]


def finetune_job(
    data_spec: DataSpec,
    model_spec: ModelSpec,
    settings: dict[str, Any],
    out: Path,
    *,
    execution: Execution | None = None,
    calibrate: str = "free",
    time: str | None = None,
    listener: events.Listener = events.ignore,
) -> tuple[Result, Metrics | None]:
    """Train, test and write the report; an unfinished run is continued, a trained one is only tested.

    Args:
        data_spec: Specification of the data.
        model_spec: Specification of the model.
        settings: Fields of `Settings` that the user chose; the others have the defaults for the kind of data.
        out: Folder of the run.
        execution: Device, precision, tracker and interval of checkpoints; the defaults if None.
        calibrate: How certain predictions are made: "free", "folds=K" or "none"; see `deelbo.finetune`.
        time: Time for the whole job, such as "10m", instead of a number of steps.
        listener: Called with the events of the job.

    Returns:
        The run, and its metrics on the test set: None without a test set, and in all but one of several processes.

    Raises:
        ValueError: If the data, the model, the settings or the folder cannot be used.
        OSError: If a file cannot be read or written.
    """
    timing = Timing(time, reported=True, advises="steps" not in settings)
    folder, execution = RunFolder(out), execution or Execution()
    execution.join()
    with ExitStack() as locks:
        locks.enter_context(lost_processes("the same command continues the run"))
        with shared_errors():
            check_time(time, settings)
            data_spec.check_outside(out)
            folds = parse_calibration(calibrate)
        status = from_first(lambda: _claim(folder, locks))
        with shared_errors():
            all_data = data_spec.read()
            chosen = settings_for(all_data.kind, all_data.targets.likelihood, settings)
            if time is not None:
                chosen = folder.with_planned_steps(chosen)
            data = split(all_data, data_spec.train_size, data_spec.test_fraction, chosen.seed, data_spec.per_class)
            if folds:
                check_folds(folds, len(data.train))
        listener(events.Note(data.describe()))
        for note in data.notes:
            listener(events.Note(note))
        about = {
            **asdict(data_spec),
            **asdict(model_spec),
            **about_run(chosen, execution),
            "task": data.targets.task,
            "fingerprint": data.fingerprint(),
            "names": data.targets.names,
            "time": timing.time,
        }
        timing.folds = folds or 0
        job = _Job(
            data=data,
            data_spec=data_spec,
            model_spec=model_spec,
            settings=chosen,
            folder=folder,
            about=about,
            listener=listener,
            calibrated=folds is not None,
            timing=timing,
        )
        result, test_set = job.trained() if status == "trained" else job.train(execution)
        if folds and result.calibration.folds != folds:
            job.calibrate(result, folds, execution)
        return result, job.test(result, test_set) if is_first() else None


def _claim(folder: RunFolder, locks: ExitStack) -> str:
    """Lock a folder until the job ends, and return what is in it."""
    if folder.status == "finished":
        raise FileExistsError(f"{folder.path} holds a finished run; choose a new folder")
    locks.enter_context(folder.lock())
    return folder.status


@dataclass
class _Job:
    """The parts of `finetune_job`, which share its arguments."""

    data: Data
    data_spec: DataSpec
    model_spec: ModelSpec
    settings: Settings
    folder: RunFolder
    about: dict[str, Any]
    listener: events.Listener
    calibrated: bool
    timing: Timing

    def train(self, execution: Execution) -> tuple[Result, ImageSet | TextSet | None]:
        """Train a new run, or continue an unfinished one."""
        with shared_errors():
            network, reader = self.model_spec.load(self.data, self.settings.seed)
            self._decide(network)
        resumed = from_first(lambda: self.folder.check(self.settings, self.about, network.state_dict()))
        with shared_errors():
            progress = events.stage(self.listener, "reading training images")
            sets = TrainingSets(
                *reader.training_sets(self.data.train, self.data_spec.skip_bad, progress, self.data_spec.flip)
            )
            test_set = self._test_set(reader)  # read before training, so that an unreadable image stops the job at once
        if resumed:
            self.listener(events.Note(f"continuing the unfinished run in {self.folder.path}"))
        self.timing.test_examples = 0 if test_set is None else len(test_set)
        run = TrainingRun(
            network=network,
            sets=sets,
            settings=self.settings,
            execution=execution,
            head=self.model_spec.head,
            folder=self.folder,
            resumed=resumed,
            about=self.about,
            reader=reader,
            listener=self.listener,
            calibrated=self.calibrated,
            timing=self.timing,
        )
        return run.train(), test_set

    def _decide(self, network: nn.Module) -> None:
        number, num_outputs = len(self.data.train), self.data.targets.num_outputs
        self.settings = decide(self.settings, network, number, num_outputs, self.listener)

    def trained(self) -> tuple[Result, ImageSet | TextSet | None]:
        """Read a run that was killed after its training."""
        with shared_errors():
            result = load(self.folder.path)
            self._decide(result.model)
            if differences := self.folder.differences(self.settings, self.about):
                raise ValueError(
                    f"{self.folder.path} holds a finished run with other settings: " + "; ".join(differences)
                )
        self.listener(events.Note(f"{self.folder.path} is trained already; the rest is made"))
        if is_first():
            self.folder.tidy()
        assert result.reader is not None
        return result, self._test_set(result.reader)

    def calibrate(self, result: Result, folds: int, execution: Execution) -> None:
        """Calibrate the run by folds of its training set."""
        job = CalibrationJob(result, self.folder, execution.device, self.listener)
        result.calibration = job.by_training_data(self.data, self.about, Source(folds))
        if is_first():
            self.folder.write_calibration(result.calibration.as_dict(), result.calibration.scores)

    def _test_set(self, reader: InputReader) -> ImageSet | TextSet | None:
        progress = events.stage(self.listener, "reading test images")
        test = self.data.test
        test_set = None if test is None else reader.dataset(test, self.data_spec.skip_bad, progress)
        if reader.bad:
            self.listener(
                events.Note(f"{counted(len(reader.bad), 'unreadable image')} left out, such as {reader.bad[0]}")
            )
        return test_set

    def test(self, result: Result, test_set: ImageSet | TextSet | None) -> Metrics | None:
        """Test the run, and write its report."""
        assessment = None
        if test_set is not None:
            assessment = assess(result, test_set, 0, events.stage(self.listener, "testing"))
        skipped = self.data.skipped + list(dict.fromkeys(result.reader.bad if result.reader else []))
        self.folder.write_test_results(assessment, skipped)
        write_report(self.folder)
        return None if assessment is None else assessment["metrics"]
