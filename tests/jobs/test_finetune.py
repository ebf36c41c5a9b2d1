"""A job that is interrupted at its seams."""

import hashlib
import json
import os
import signal

import pytest

from deelbo import events
from deelbo.cli import main
from deelbo.jobs.finetune import finetune_job
from deelbo.specs import DataSpec, ModelSpec
from deelbo.training.device import Execution
from shared.pictures import image_folder, picture, text_table, tiny_encoder

pytestmark = pytest.mark.slow

FAST = {"steps": 80, "batch_size": 6, "learning_rates": (0.1, 0.01, 0.001), "samples": 2}


def train(folder, settings, out, listener=events.ignore, head=None, **data):
    model = ModelSpec("shared.pictures:small", image_size=28, head=head)
    data_spec = DataSpec(str(folder), **data)
    return finetune_job(data_spec, model, settings, out, execution=Execution("cpu"), listener=listener)


def digest(run):
    return hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest()


def interrupt_at(number):
    """Send Ctrl-C at the given event of training."""
    seen = []

    def listener(event):
        if isinstance(event, (events.StepTaken, events.ObjectiveAwaited, events.ObjectiveEstimated)):
            seen.append(event)
            if len(seen) == number:
                os.kill(os.getpid(), signal.SIGINT)

    return listener


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("job")
    train(image_folder(folder / "data"), FAST, folder / "whole")
    return folder / "whole"


@pytest.mark.parametrize("moment", [3, 17, 30, 70, 110])  # in training, in cooling down, in the duel, at the end
def test_interrupted_and_resumed(tmp_path, whole, moment):
    folder = whole.parent / "data"
    with pytest.raises(KeyboardInterrupt):
        train(folder, FAST, tmp_path / "run", interrupt_at(moment))
    assert not (tmp_path / "run" / "model.safetensors").exists()
    train(folder, FAST, tmp_path / "run")
    assert digest(tmp_path / "run") == digest(whole)
    values = [json.loads((run / "run.json").read_text())["learned"] for run in (tmp_path / "run", whole)]
    assert values[0] == values[1]


def test_resuming_refuses_other_data_and_settings(tmp_path, capsys):
    folder, run = image_folder(tmp_path / "data"), tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train(folder, FAST, run, interrupt_at(30))
    with pytest.raises(ValueError, match=r"momentum: 0\.9 -> 0\.5"):
        train(folder, {**FAST, "momentum": 0.5}, run)
    with pytest.raises(ValueError, match="train_size: None -> 9"):
        train(folder, FAST, run, train_size=9)
    picture("red", 9).save(folder / "train" / "red" / "new.png")
    with pytest.raises(ValueError, match="fingerprint"):
        train(folder, FAST, run)
    (folder / "train" / "red" / "new.png").unlink()
    train(folder, FAST, run)


def test_a_run_killed_between_training_and_report_is_completed(tmp_path):
    folder, run = image_folder(tmp_path / "data"), tmp_path / "run"
    notes = []
    _, metrics = train(folder, FAST, run)
    report = (run / "report.html").read_text()
    for name in ("report.html", "assessment.json"):
        (run / name).unlink()
    before = digest(run)
    _, again = train(folder, FAST, run, notes.append)
    assert any("is trained already; the rest is made" in note.text for note in notes if isinstance(note, events.Note))
    assert again == pytest.approx(metrics)
    assert digest(run) == before
    assert (run / "report.html").read_text() == report
    with pytest.raises(FileExistsError, match="finished run"):
        train(folder, FAST, run)


def test_few_texts_are_trained_by_pairs_whatever_interrupts_them(tmp_path):
    table, model = (
        text_table(tmp_path / "table.csv"),
        ModelSpec(tiny_encoder(tmp_path / "encoder", pooling_mode="mean")),
    )

    def train_texts(out, listener=events.ignore):
        settings = {"steps": 12, "batch_size": 6, "samples": 2}
        finetune_job(DataSpec(str(table)), model, settings, out, execution=Execution("cpu"), listener=listener)

    whole, run, notes = tmp_path / "whole", tmp_path / "run", []
    train_texts(whole, notes.append)
    assert any("drawn together" in note.text for note in notes if isinstance(note, events.Note))
    settings = json.loads((whole / "run.json").read_text())["settings"]
    assert (settings["pairs"], settings["learning_rates"]) == (True, [0.01])
    with pytest.raises(KeyboardInterrupt):
        train_texts(run, interrupt_at(7))
    train_texts(run)
    assert digest(run) == digest(whole)
    (run / "report.html").unlink()
    train_texts(run)
    assert (run / "report.html").exists()


def test_only_the_same_run_is_completed(tmp_path):
    folder, run = image_folder(tmp_path / "data"), tmp_path / "run"
    train(folder, FAST, run)
    (run / "report.html").unlink()
    other = image_folder(tmp_path / "other", train=5)
    with pytest.raises(ValueError, match="finished run with other settings: fingerprint"):
        train(other, FAST, run)
    train(folder, FAST, run)


def test_a_folder_is_one_process_at_a_time(tmp_path):
    import filelock

    folder, run = image_folder(tmp_path / "data"), tmp_path / "run"
    with filelock.FileLock(tmp_path / ".run.lock"), pytest.raises(FileExistsError, match="another process"):
        train(folder, FAST, run)
    assert not run.exists()
    train(folder, {**FAST, "steps": 4}, run)
    assert not (tmp_path / ".run.lock").exists()


def test_checkpoints_of_a_run_that_lost_its_beginning_are_not_used(tmp_path, whole):
    folder, run = whole.parent / "data", tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train(folder, {**FAST, "seed": 3}, run, interrupt_at(50))
    (run / "run.json").unlink()
    train(folder, FAST, run)
    assert digest(run) == digest(whole)


def test_a_run_that_diverged_leaves_its_folder_free(tmp_path):
    folder, run = image_folder(tmp_path / "data"), tmp_path / "run"
    wild = {**FAST, "learning_rates": (1e30, 1e31), "clip": None}
    with pytest.raises(RuntimeError, match="every learning rate diverged"), pytest.warns(UserWarning, match="diverged"):
        train(folder, wild, run)
    train(folder, {**FAST, "steps": 4}, run)


def test_places(tmp_path):
    folder = image_folder(tmp_path / "data")
    with pytest.raises(ValueError, match="is among the data"):
        train(folder, FAST, folder / "train" / "run")
    with pytest.raises(ValueError, match='head "nothing" names no parameter'):
        train(folder, FAST, tmp_path / "run", head="nothing")
    assert not (tmp_path / "run").exists()
    train(folder, {**FAST, "steps": 4}, folder / "run", head="fc")


def test_ctrl_c_says_how_to_go_on(tmp_path, capsys, monkeypatch):
    folder, run = image_folder(tmp_path / "data"), tmp_path / "run"
    words = ["finetune", str(folder), "--model", "shared.pictures:small", "--image-size", "28", "--steps", "40"]
    words += ["--out", str(run)]
    monkeypatch.setattr("sys.argv", ["deelbo", *words])
    monkeypatch.setattr(
        "deelbo.cli.progress.RunProgress.__call__", lambda self, event, send=interrupt_at(5): send(event)
    )
    assert main([*words, "--device", "cpu"]) == 130
    assert f"the same command continues it: deelbo finetune {folder}" in capsys.readouterr().err
    monkeypatch.undo()
    assert main([*words, "--device", "cpu", "--quiet"]) == 0
