"""Training by the library SetFit, on the same texts, with the same encoder, steps and tests as the other methods."""

from __future__ import annotations

import tempfile
import time
from typing import Any

import torch
from torch import Tensor

from deelbo._extras import require
from deelbo._hub import cache_without_network
from deelbo._seeds import own_randomness
from deelbo.compare.problem import Trial
from deelbo.data import Data
from deelbo.models.offline import minilm_folder


def setfit_probabilities(trial: Trial, data: Data) -> tuple[Tensor, dict[str, float]]:
    """Train on the training texts and predict the test texts.

    A step takes half as many pairs as the other methods take texts, so that both see as many texts in a step.

    Args:
        trial: The run, with the number of steps and the batch size.
        data: Training and test texts with their classes.

    Returns:
        Probabilities of the classes of the test texts, and the seconds of training and testing.

    Raises:
        ValueError: If the data are no texts.
    """
    if data.kind != "text":
        raise ValueError(f"setfit is for texts, not for {data.kind}s")
    setfit, datasets = require("setfit", "setfit"), require("datasets", "setfit")
    assert data.test is not None
    settings = trial.settings
    with own_randomness(torch.device("cpu")), cache_without_network(), tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(settings.seed)
        model = setfit.SetFitModel.from_pretrained(_encoder(trial))
        if trial.model_spec.max_length is not None:
            model.model_body.max_seq_length = trial.model_spec.max_length
        arguments = setfit.TrainingArguments(
            output_dir=folder,
            batch_size=max(1, settings.batch_size // 2),
            max_steps=settings.steps,
            seed=settings.seed,
            report_to="none",
            save_strategy="no",
            show_progress_bar=False,
        )
        columns: dict[str, Any] = {"text": list(data.train.inputs), "label": list(data.train.labels)}
        start = time.perf_counter()
        setfit.Trainer(model, args=arguments, train_dataset=datasets.Dataset.from_dict(columns)).train()
        trained = time.perf_counter()
        predicted = torch.as_tensor(model.predict_proba(list(data.test.inputs), show_progress_bar=False))
    known = [int(label) for label in model.model_head.classes_]  # classes without a training text have no column
    probabilities = torch.zeros(len(predicted), data.targets.num_outputs, dtype=torch.float64)
    probabilities[:, known] = predicted.double().cpu()
    return probabilities, {"training": trained - start, "test": time.perf_counter() - trained}


def _encoder(trial: Trial) -> str:
    prefix, _, name = trial.model_spec.model.partition(":")
    return name if prefix == "hf" else minilm_folder()
