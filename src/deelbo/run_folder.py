"""The folder of a run: this file alone knows what is in it, and writes it.

run.json               settings, plan and, when the run is finished, what it learned; written last
checkpoints/           states of the candidates, only during training
model.safetensors      weights of the network
posterior.safetensors  scale of the posterior; of a diagonal one, the scales by the name of the weight as well
history.csv            a row for each epoch
held_out.safetensors   how unusual examples are that were predicted without having been seen, for prediction sets
folds/                 runs on parts of the training set, only while a finished run is calibrated by them
architecture/          configuration and tokenizer of a Hugging Face model
assessment.json        results on the test set in detail
report.html            the page that shows the run
"""

from __future__ import annotations

import csv
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from deelbo._files import locked, read_json, read_tensors, write_json, write_tensors, write_text
from deelbo._wording import csv_text
from deelbo.optimizers import OPTIMIZERS
from deelbo.posteriors import POSTERIORS
from deelbo.training.search import FolderStore
from deelbo.training.settings import Settings
from deelbo.training.time_budget import Plan

SCHEMA = 3  # version of the format of run.json
_CHECKPOINT = re.compile(r"(initial|learning-rate-.+)\.safetensors|\..+\.part")
# A run may be continued after its data were moved: only their content must be the same.
_NOT_COMPARED = ("data", "data_dir", "text_column", "label_column", "start_hash")


class RunFolder:
    """A folder that holds one run, or will hold one.

    Args:
        path: Path of the folder; it is made when it is first written to.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    # ---- what is there ----

    @property
    def status(self) -> str:
        """Return "none", "training", "trained" (without a report) or "finished" (with one)."""
        if not (self.path / "run.json").is_file():
            return "none"
        if self.read()["status"] != "finished":
            return "training"
        return "finished" if self.report_path.is_file() else "trained"

    @property
    def report_path(self) -> Path:
        """Path of the page that shows the run."""
        return self.path / "report.html"

    @property
    def architecture(self) -> Path:
        """Folder with the configuration and tokenizer of a Hugging Face model."""
        return self.path / "architecture"

    def read(self) -> dict[str, Any]:
        """Read `run.json`.

        Raises:
            FileNotFoundError: If there is none.
            ValueError: If the file is damaged, no run, or from another version of deelbo.
        """
        path = self.path / "run.json"
        if not path.is_file():
            reason = "there is no run.json in it" if self.path.is_dir() else "there is no such folder"
            raise FileNotFoundError(f"{self.path} is no run: {reason}")
        run = read_json(path)
        if not isinstance(run, dict) or "schema" not in run or "status" not in run:
            raise ValueError(f"{path} does not describe a run")
        if run["schema"] != SCHEMA:
            raise ValueError(f"{path} has schema {run['schema']}; this version of deelbo reads {SCHEMA}")
        return run

    def read_plan(self) -> Plan | None:
        """Read how the run is laid out in time; None if there is no run, or it was not measured."""
        stored = None if self.status == "none" else self.read().get("plan")
        return None if stored is None else Plan(**stored)

    def with_planned_steps(self, settings: Settings) -> Settings:
        """Return settings with the number of steps that was fixed when the run began, if a time decided it."""
        plan = self.read_plan()
        return settings if plan is None or plan.time is None else replace(settings, steps=plan.steps)

    def read_finished(self) -> dict[str, Any]:
        """Read `run.json` of a run whose training is finished.

        Raises:
            FileNotFoundError: If there is no run.
            ValueError: If it is unfinished or damaged.
        """
        run = self.read()
        if run["status"] != "finished":
            raise ValueError(
                f"{self.path} is an unfinished run; call finetune(..., out={str(self.path)!r}) to continue it"
            )
        return run

    def read_weights(self) -> dict[str, Tensor]:
        """Read the weights of a finished run."""
        return read_tensors(self.path / "model.safetensors")[0]

    def read_scales(self) -> dict[str, Tensor]:
        """Read the scales of a diagonal posterior by the name of the weight."""
        found = read_tensors(self.path / "posterior.safetensors")[0]
        return {name.removeprefix("scale."): value for name, value in found.items() if name.startswith("scale.")}

    def read_history(self) -> list[dict[str, float]]:
        """Read the rows of `history.csv`."""
        with (self.path / "history.csv").open(newline="") as file:
            return [{name: float(value) for name, value in row.items() if value} for row in csv.DictReader(file)]

    def read_assessment(self) -> dict[str, Any] | None:
        """Read the results on the test set, if the run was tested."""
        path = self.path / "assessment.json"
        return read_json(path) if path.is_file() else None

    def read_scores(self, temperature: float) -> Tensor | None:
        """Read how unusual unseen examples are at a temperature, if the run was calibrated by such examples."""
        path = self.path / "held_out.safetensors"
        if not path.is_file():
            return None
        tensors, notes = read_tensors(path)
        return tensors["scores"] if notes.get("temperature") == temperature else None

    # ---- whether a run may begin or continue ----

    def lock(self) -> AbstractContextManager[None]:
        """Lock the folder against other processes inside the block; see `locked`."""
        return locked(self.path)

    def differences(self, settings: Settings, about: Mapping[str, Any]) -> list[str]:
        """Return the differences between the stored run and the one that is wanted, one line for each.

        Args:
            settings: Settings that are wanted.
            about: Further facts about the run, compared where both runs have them.
        """
        run = self.read()
        stored = run.get("about", {})
        compared = {name: value for name, value in about.items() if name not in _NOT_COMPARED and name in stored}
        differences = settings.differences(run["settings"])
        return differences + [f"{n}: {stored[n]!r} -> {v!r}" for n, v in compared.items() if stored[n] != v]

    def lacks_folds(self, folds: int | None, settings: Settings, about: Mapping[str, Any]) -> bool:
        """Tell whether the folder holds a finished run of these settings that lacks its calibration by so many folds.

        Args:
            folds: Number of folds that are wanted; 0 or None for none.
            settings: Settings of the run.
            about: Further facts about the run, compared where both runs have them.

        Raises:
            ValueError: If it does, but started from other weights or examples.
        """
        if not folds or self.status not in ("trained", "finished") or self.differences(settings, about):
            return False
        run = self.read()
        if (run.get("calibration") or {}).get("folds") == folds:
            return False
        if run["about"].get("start_hash") != about.get("start_hash"):
            raise ValueError(
                f"the run in {self.path} started from other weights or other examples than are given now: its folds "
                "need the pretrained network, not the trained one, and the same training set"
            )
        return True

    def check(self, settings: Settings, about: Mapping[str, Any], weights: Mapping[str, Tensor]) -> bool:
        """Return True if there is an unfinished run of these settings to continue, and False if a new one may begin.

        Args:
            settings: Settings of the run.
            about: Further facts about the run, compared where both runs have them.
            weights: Weights of the network; the run needs space for several copies of them.

        Raises:
            FileExistsError: If the folder holds a finished run, or something else.
            ValueError: If it holds an unfinished run of other settings.
            OSError: If there is not enough space for a new run.
        """
        if self.path.exists() and not self.path.is_dir():
            raise FileExistsError(f"{self.path} is a file; choose a new folder")
        status = self.status
        if status in ("trained", "finished"):
            raise FileExistsError(f"{self.path} holds a finished run; choose a new folder")
        if status == "training":
            if differences := self.differences(settings, about):
                raise ValueError(
                    f"{self.path} holds an unfinished run with other settings ({'; '.join(differences)}): "
                    "continue it with its own settings, or choose a new folder"
                )
            return True
        if self.path.exists() and not all(map(_left_over, self.path.iterdir())):
            raise FileExistsError(f"{self.path} holds something else than a run; choose a new folder")
        self._check_space(weights, settings)
        return False

    def _check_space(self, weights: Mapping[str, Tensor], settings: Settings) -> None:
        existing = next(p for p in (self.path, *self.path.absolute().parents) if p.exists())
        copies = 1 + OPTIMIZERS[settings.optimizer].buffers  # the weights and the optimizer's buffers
        copies *= POSTERIORS[settings.posterior].numbers_per_weight
        size = sum(value.numel() * value.element_size() for value in weights.values())
        needed = size * (copies * (len(settings.learning_rates) + 1) + 2) + 5_000_000  # for the report and small files
        free = shutil.disk_usage(existing).free
        if free < needed:
            raise OSError(
                f"no space: a run needs {needed / 1e9:.2g} GB in {self.path}, and {free / 1e9:.2g} GB are free"
            )

    # ---- writing ----

    def begin(
        self,
        settings: Settings,
        about: Mapping[str, Any],
        initial: dict[str, Tensor],
        start: dict[str, Any],
        *,
        plan: Plan | None = None,
    ) -> None:
        """Write the settings, the initial weights, and what was decided before the first step, of a new run."""
        shutil.rmtree(self.path / "checkpoints", ignore_errors=True)  # left by a run that lost its run.json
        write_tensors(self.path / "checkpoints" / "initial.safetensors", initial, start)
        laid_out = None if plan is None else plan.as_dict()
        self._write_run({"status": "training", "settings": settings.as_dict(), "about": dict(about), "plan": laid_out})

    def initial_state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Read the weights that an interrupted run started from, and what was decided before its first step."""
        return read_tensors(self.path / "checkpoints" / "initial.safetensors")

    def checkpoints(self, writes: bool = True) -> FolderStore:
        """Return the store of the candidates' states; `writes` is False in all processes but one."""
        return FolderStore(self.path / "checkpoints", writes)

    def abandon(self) -> None:
        """Remove a run that diverged: other learning rates would be refused as other settings of it."""
        shutil.rmtree(self.path / "checkpoints")
        (self.path / "run.json").unlink()

    def finish(
        self,
        run: Mapping[str, Any],
        weights: Mapping[str, Tensor],
        history: Sequence[Mapping[str, float]],
        write_files: Callable[[Path], None] | None = None,
        scales: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Write a finished run, `run.json` last, and delete the checkpoints.

        Args:
            run: Entries of `run.json`.
            weights: Weights of the network.
            history: A row for each epoch of each candidate.
            write_files: Function that writes configuration and tokenizer of the model into a folder, if it has some.
            scales: Scales of a diagonal posterior by the name of the weight.
        """
        write_tensors(self.path / "model.safetensors", dict(weights))
        if (scale := run["learned"].get("scale")) is not None:
            each = {f"scale.{name}": value for name, value in (scales or {}).items()}
            typical = torch.tensor(scale, dtype=torch.float64)
            write_tensors(self.path / "posterior.safetensors", {"scale": typical, **each})
        write_text(self.path / "history.csv", csv_text(history))
        if write_files is not None:
            write_files(self.architecture)
        self._write_run({"status": "finished", **run})
        self.tidy()

    def tidy(self) -> None:
        """Delete the checkpoints of a finished run."""
        shutil.rmtree(self.path / "checkpoints", ignore_errors=True)

    def write_test_results(self, assessment: dict[str, Any] | None, skipped: Sequence[str]) -> None:
        """Write the results on the test set, if there is one, and the names of the inputs that were left out."""
        if assessment is not None:
            write_json(self.path / "assessment.json", assessment)
        metrics = None if assessment is None else assessment["metrics"]
        self._write_run({**self.read(), "metrics": metrics, "skipped": list(skipped)})

    def write_calibration(self, calibration: Mapping[str, Any], scores: Tensor | None) -> None:
        """Write how certain predictions are made, in place of what was written before, and delete the folds.

        Args:
            calibration: Entries of `run.json`.
            scores: How unusual unseen examples are, if some were predicted.
        """
        path = self.path / "held_out.safetensors"
        if scores is not None:  # with the temperature, so that after a crash they are not taken for those of another
            write_tensors(path, {"scores": scores}, {"temperature": calibration["temperature"]})
        self._write_run({**self.read(), "calibration": dict(calibration)})
        if scores is None:
            path.unlink(missing_ok=True)
        shutil.rmtree(self.path / "folds", ignore_errors=True)

    def fold(self, number: int) -> RunFolder:
        """Return the folder of a run on a part of the training set."""
        return RunFolder(self.path / "folds" / str(number))

    def write_fold(
        self, number: int, settings: Settings, about: Mapping[str, Any], found: Mapping[str, Tensor]
    ) -> None:
        """Write what a finished fold found in place of its folder; for the arguments see `read_fold`."""
        known = {"settings": settings.as_dict(), "about": dict(about)}
        write_tensors(self.path / "folds" / f"{number}.safetensors", dict(found), known)
        shutil.rmtree(self.fold(number).path, ignore_errors=True)

    def read_fold(self, number: int, settings: Settings, about: Mapping[str, Any]) -> dict[str, Tensor] | None:
        """Read what a finished fold found; None if there is none of these settings.

        Args:
            number: Number of the fold.
            settings: Settings of its run.
            about: Further facts about it.
        """
        path = self.path / "folds" / f"{number}.safetensors"
        if path.is_file():
            found, known = read_tensors(path)
            if not settings.differences(known["settings"]) and known["about"] == dict(about):
                return found
        if (own := self.fold(number)).path.exists() and (own.status != "training" or own.differences(settings, about)):
            shutil.rmtree(own.path)  # of other settings, or killed before it could write what it found
        return None

    def write_report(self, page: str) -> Path:
        """Write the page that shows the run, and return its path."""
        write_text(self.report_path, page)
        return self.report_path

    def _write_run(self, run: dict[str, Any]) -> None:
        write_json(self.path / "run.json", {"schema": SCHEMA, **run})


def _left_over(path: Path) -> bool:
    """Tell whether a file or folder is from a run that was interrupted before its `run.json`, or that diverged."""
    if path.name == "checkpoints" and path.is_dir():
        return all(_CHECKPOINT.fullmatch(file.name) for file in path.iterdir())
    return (path.name == "log" and path.is_dir()) or path.suffix == ".part"
