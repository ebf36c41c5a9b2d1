"""Runs that are killed or interrupted go on as if nothing had happened."""

import hashlib
import os
import random
import signal
import time

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import deelbo
from deelbo.events import StepTaken
from shared.digits import FAST, digits, network, quick
from shared.processes import Started, wait_until

pytestmark = pytest.mark.slow


LONG = {**FAST, "steps": 400, "learning_rates": (0.1, 0.03, 0.01, 0.001), "checkpoint_seconds": 0.02}


def train(folder):
    quick(out=folder, **LONG)


def train_numbers(folder):
    images, _ = digits()[0].tensors
    targets = torch.stack([1e6 + images.sum(1), images[:, 20]], 1)  # of very different size
    _train_other(folder, images, targets)


def train_labels(folder):
    images, classes = digits()[0].tensors
    targets = torch.stack([classes % 2 == 0, classes > 4, classes == 0], 1).long()
    _train_other(folder, images, targets, class_weights="balanced")


def _train_other(folder, images, targets, **settings):
    model = network()
    model[4] = nn.Linear(64, targets.shape[1])
    deelbo.finetune(model, TensorDataset(images, targets), "4", out=folder, **LONG, **settings)


def _hash(folder):
    names = ("model.safetensors", "history.csv")
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}


def _newest(folder):
    return max((path.stat().st_mtime_ns for path in folder.glob("checkpoints/learning-rate-*")), default=0)


@pytest.mark.parametrize(("train", "wanted"), [(train, 3), (train_numbers, 2), (train_labels, 2)])
def test_killed_runs_go_on_bit_for_bit(tmp_path, train, wanted):
    assert Started(train, tmp_path / "whole").wait() == 0
    generator = random.Random(0)
    folder, kills = tmp_path / "killed", 0
    while kills < wanted:
        before = _newest(folder)
        process = Started(train, folder)
        assert wait_until(lambda before=before: _newest(folder) != before, process)  # until it trains
        time.sleep(generator.uniform(0, 0.25))
        assert process.kill() == -signal.SIGKILL
        kills += 1
    assert Started(train, folder).wait() == 0
    assert _hash(folder) == _hash(tmp_path / "whole")
    assert sorted(path.name for path in folder.iterdir()) == [
        "history.csv",
        "model.safetensors",
        "posterior.safetensors",
        "run.json",
    ]


def test_interrupted_run_resumes_and_refuses_other_settings(tmp_path):
    def stop(event):
        if isinstance(event, StepTaken) and event.step == 20:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        quick(out=tmp_path / "run", listener=stop)
    with pytest.raises(ValueError, match="unfinished run"):
        deelbo.load(tmp_path / "run", network())
    with pytest.raises(ValueError, match="steps: 60 -> 70"):
        quick(out=tmp_path / "run", steps=70)
    steps = []
    result = quick(out=tmp_path / "run", listener=steps.append)
    assert next(event.step for event in steps if isinstance(event, StepTaken)) == 21
    assert result.objective == quick().objective
    with pytest.raises(FileExistsError, match="finished run"):
        quick(out=tmp_path / "run")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").touch()
    with pytest.raises(FileExistsError, match="something else"):
        quick(out=tmp_path / "photos")


def test_an_interrupted_run_knows_its_head_and_optimizer_again(tmp_path):
    def stop(event):
        raise KeyboardInterrupt

    arguments = {**FAST, "steps": 3, "optimizer": "adamw", "learning_rates": (0.01,)}
    with pytest.raises(KeyboardInterrupt):
        deelbo.finetune(network(), digits()[0], ("4",), listener=stop, out=tmp_path / "run", **arguments)
    resumed = deelbo.finetune(network(), digits()[0], ("4",), out=tmp_path / "run", **arguments)
    assert resumed.history == deelbo.finetune(network(), digits()[0], ("4",), **arguments).history


@pytest.mark.filterwarnings("ignore:posterior")
@pytest.mark.parametrize(
    "settings", [{"posterior": "diagonal", "draws": 2}, {"posterior": "diagonal", "optimizer": "adamw"}, {"draws": 3}]
)
def test_other_posteriors_and_several_draws_are_continued(tmp_path, settings):
    def stop(event):
        if isinstance(event, StepTaken) and event.step == 11:
            raise KeyboardInterrupt

    settings = {**settings, "steps": 25, "learning_rates": (0.03,), "checkpoint_seconds": 0.0}
    with pytest.raises(KeyboardInterrupt):
        quick(out=tmp_path / "run", listener=stop, **settings)
    seen = []
    resumed, whole = quick(out=tmp_path / "run", listener=seen.append, **settings), quick(**settings)
    assert next(event.step for event in seen if isinstance(event, StepTaken)) == 11
    assert resumed.history == whole.history
    assert (resumed.objective, resumed.scale) == (whole.objective, whole.scale)
    for (name, one), other in zip(resumed.model.state_dict().items(), whole.model.state_dict().values(), strict=True):
        assert torch.equal(one, other), name
    assert torch.equal(resumed.posterior.scale, whole.posterior.scale)
