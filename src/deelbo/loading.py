"""Reading a finished run from its folder."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from deelbo.likelihoods import LIKELIHOODS
from deelbo.models import restore_model
from deelbo.result import Result
from deelbo.run_folder import RunFolder
from deelbo.training.calibration import Calibration
from deelbo.training.settings import Settings


def load(path: str | Path, model: nn.Module | None = None) -> Result:
    """Read a finished run.

    Args:
        path: Folder of the run.
        model: A network of the same architecture, whose weights are replaced; only needed if the run's network was
            made in Python.

    Raises:
        FileNotFoundError: If there is no run.
        ValueError: If the run is unfinished, damaged, of another architecture, or needs `model`.
    """
    folder = RunFolder(path)
    run = folder.read_finished()
    try:
        return _restore(folder, run, model)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{folder.path / 'run.json'} is damaged: {type(error).__name__} {error}") from error


def _restore(folder: RunFolder, run: dict[str, Any], model: nn.Module | None) -> Result:
    reader = None
    if model is None:
        if run.get("model") is None:
            raise ValueError(f"the network of {folder.path} was made in Python: pass it as load(path, model)")
        model, reader = restore_model(run["model"], folder.architecture)
    try:
        model.load_state_dict(folder.read_weights())
    except RuntimeError as error:
        raise ValueError(f"{folder.path} is a run of another architecture: {error}") from error
    learned = dict(run["learned"])
    settings = Settings(**{**run["settings"], "learning_rates": tuple(run["settings"]["learning_rates"])})
    likelihood = LIKELIHOODS[settings.likelihood].for_training(settings.class_weights)
    likelihood.restore(learned.pop("likelihood"))
    search = learned.pop("search")
    rate, objective = learned.pop("learning_rate"), learned.pop("objective")
    variances, scale = learned.pop("prior_variances"), learned.pop("objective_scale")
    return Result(
        model=model.eval(),
        settings=settings,
        likelihood=likelihood,
        learning_rate=rate,
        objective=objective,
        objective_scale=scale,
        prior_variances={name: float(value) for name, value in variances.items()},
        learned={name: value for name, value in learned.items() if value is not None},
        history=folder.read_history(),
        values={
            int(step): {float(rate): -math.inf if v is None else v for rate, v in row.items()}
            for step, row in search.items()
        },
        num_data=run["num_data"],
        num_params=run["num_params"],
        speed=run["speed"],
        reader=reader,
        start=run.get("start", {}),
        plan=run.get("plan"),
        calibration=_calibration(folder, run.get("calibration") or {}),
        scales=folder.read_scales() if settings.posterior == "diagonal" else None,
    )


def _calibration(folder: RunFolder, stored: dict[str, Any]) -> Calibration:
    calibration = Calibration(**stored)
    return replace(calibration, scores=folder.read_scores(calibration.temperature))
