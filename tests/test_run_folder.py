"""Whose a folder is: nothing that a user made is touched."""

import pytest
import torch
from torch import nn

import deelbo
from deelbo._files import locked
from deelbo.run_folder import RunFolder
from deelbo.training.settings import Settings

EXAMPLES = [(torch.ones(4) * i, i % 2) for i in range(8)]
FAST = {"steps": 2, "batch_size": 4, "learning_rates": (0.1,), "samples": 1, "device": "cpu"}


def network():
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))


def test_checkpoints_of_somebody_else_are_left_alone(tmp_path):
    kept = tmp_path / "checkpoints" / "thesis.pt"
    kept.parent.mkdir()
    kept.touch()
    with pytest.raises(FileExistsError, match="something else"):
        deelbo.finetune(network(), EXAMPLES, "1", out=tmp_path, **FAST)
    assert kept.exists()
    (tmp_path / "log").touch()  # a file, not a tracker's folder
    kept.rename(kept.with_name("initial.safetensors"))
    with pytest.raises(FileExistsError, match="something else"):
        RunFolder(tmp_path).check(Settings(), {}, {})
    (tmp_path / "log").unlink()
    assert not RunFolder(tmp_path).check(Settings(), {}, {})


def test_the_current_folder_will_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    deelbo.finetune(network(), EXAMPLES, "1", out=".", **FAST)
    assert (tmp_path / "run.json").exists()
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".lock"] == []


def test_one_process_at_a_time(tmp_path):
    with (
        locked(tmp_path / "run"),
        pytest.raises(FileExistsError, match="another process is at work on"),
        locked(tmp_path / "other" / ".." / "run"),
    ):
        pass


def test_after_divergence_the_folder_is_free_again(tmp_path):
    class Undefined(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.fc = nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x):
            return self.fc(self.body(x)) * (torch.nan if self.training else 1)

    with pytest.warns(UserWarning, match="diverged"), pytest.raises(deelbo.AllDivergedError):
        deelbo.finetune(Undefined(), EXAMPLES, out=tmp_path / "run", log="tensorboard", **FAST)
    deelbo.finetune(network(), EXAMPLES, "1", out=tmp_path / "run", log="tensorboard", **FAST)
    assert (tmp_path / "run" / "run.json").exists()
