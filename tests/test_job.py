"""A job that is interrupted at its seams."""

import hashlib
import json
import os
import signal

import pytest

from deelbo.cli import main
from deelbo.job import Job, run_job
from shared.pictures import image_folder, picture

pytestmark = pytest.mark.slow

FAST = {"steps": 80, "batch_size": 6, "learning_rates": (0.1, 0.01, 0.001), "samples": 2}


def job(folder, **options):
    return Job(str(folder), "shared.pictures:small", image_size=28, **options)


def digest(run):
    return hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest()


def interrupt_at(number):
    """Send Ctrl-C at the given event of training."""
    seen = []

    def report(event):
        if "rate" in event:
            seen.append(event)
            if len(seen) == number:
                os.kill(os.getpid(), signal.SIGINT)

    return report


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("job")
    run_job(job(image_folder(folder / "data")), FAST, folder / "whole", device="cpu")
    return folder / "whole"


@pytest.mark.parametrize("moment", [3, 17, 30, 70, 110])  # in training, in cooling down, in the duel, at the end
def test_interrupted_and_resumed(tmp_path, whole, moment):
    folder = whole.parent / "data"
    with pytest.raises(KeyboardInterrupt):
        run_job(job(folder), FAST, tmp_path / "run", device="cpu", report=interrupt_at(moment))
    assert not (tmp_path / "run" / "model.safetensors").exists()
    run_job(job(folder), FAST, tmp_path / "run", device="cpu")
    assert digest(tmp_path / "run") == digest(whole)
    values = [json.loads((run / "run.json").read_text())["learned"] for run in (tmp_path / "run", whole)]
    assert values[0] == values[1]


def test_resuming_refuses_other_data_and_settings(tmp_path, capsys):
    folder, run = image_folder(tmp_path / "data"), tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run_job(job(folder), FAST, run, device="cpu", report=interrupt_at(30))
    with pytest.raises(ValueError, match=r"momentum: 0\.9 -> 0\.5"):
        run_job(job(folder), {**FAST, "momentum": 0.5}, run, device="cpu")
    with pytest.raises(ValueError, match="train_size: None -> 9"):
        run_job(job(folder, train_size=9), FAST, run, device="cpu")
    picture("red", 9).save(folder / "train" / "red" / "new.png")
    with pytest.raises(ValueError, match="fingerprint"):
        run_job(job(folder), FAST, run, device="cpu")
    (folder / "train" / "red" / "new.png").unlink()
    run_job(job(folder), FAST, run, device="cpu")


def test_a_run_killed_between_training_and_report_is_completed(tmp_path):
    folder, run = image_folder(tmp_path / "data"), tmp_path / "run"
    notes = []
    _, metrics = run_job(job(folder), FAST, run, device="cpu")
    report = (run / "report.html").read_text()
    for name in ("report.html", "assessment.json"):
        (run / name).unlink()
    before = digest(run)
    _, again = run_job(job(folder), FAST, run, device="cpu", report=notes.append)
    assert "its test and report are made now" in notes[0]["note"]
    assert again == pytest.approx(metrics)
    assert digest(run) == before
    assert (run / "report.html").read_text() == report
    with pytest.raises(FileExistsError, match="finished run"):
        run_job(job(folder), FAST, run, device="cpu")


def test_only_the_same_run_is_completed(tmp_path):
    folder, run = image_folder(tmp_path / "data"), tmp_path / "run"
    run_job(job(folder), FAST, run, device="cpu")
    (run / "report.html").unlink()
    other = image_folder(tmp_path / "other", train=5)
    with pytest.raises(ValueError, match="finished run with other settings: fingerprint"):
        run_job(job(other), FAST, run, device="cpu")
    run_job(job(folder), FAST, run, device="cpu")


def test_a_folder_is_one_process_at_a_time(tmp_path):
    import filelock

    folder, run = image_folder(tmp_path / "data"), tmp_path / "run"
    with filelock.FileLock(tmp_path / ".run.lock"), pytest.raises(FileExistsError, match="another process"):
        run_job(job(folder), FAST, run, device="cpu")
    assert not run.exists()
    run_job(job(folder), {**FAST, "steps": 4}, run, device="cpu")
    assert not (tmp_path / ".run.lock").exists()


def test_checkpoints_of_a_run_that_lost_its_beginning_are_not_used(tmp_path, whole):
    folder, run = whole.parent / "data", tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run_job(job(folder), {**FAST, "seed": 3}, run, device="cpu", report=interrupt_at(50))
    (run / "run.json").unlink()
    run_job(job(folder), FAST, run, device="cpu")
    assert digest(run) == digest(whole)


def test_a_run_that_diverged_leaves_its_folder_free(tmp_path):
    folder, run = image_folder(tmp_path / "data"), tmp_path / "run"
    wild = {**FAST, "learning_rates": (1e30, 1e31), "clip": None}
    with pytest.raises(RuntimeError, match="every learning rate diverged"), pytest.warns(UserWarning, match="diverged"):
        run_job(job(folder), wild, run, device="cpu")
    run_job(job(folder), {**FAST, "steps": 4}, run, device="cpu")


def test_places(tmp_path):
    folder = image_folder(tmp_path / "data")
    with pytest.raises(ValueError, match="is among the data"):
        run_job(job(folder), FAST, folder / "train" / "run", device="cpu")
    with pytest.raises(ValueError, match='head "nothing" names no parameter'):
        run_job(job(folder, head="nothing"), FAST, tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()
    run_job(job(folder, head="fc"), {**FAST, "steps": 4}, folder / "run", device="cpu")


def test_ctrl_c_says_how_to_go_on(tmp_path, capsys, monkeypatch):
    folder, run = image_folder(tmp_path / "data"), tmp_path / "run"
    words = ["finetune", str(folder), "--model", "shared.pictures:small", "--image-size", "28", "--steps", "40"]
    words += ["--out", str(run)]
    monkeypatch.setattr("sys.argv", ["deelbo", *words])
    monkeypatch.setattr(
        "deelbo.cli.progress.RunProgress.__call__", lambda self, event, send=interrupt_at(5): send(event)
    )
    assert main([*words, "--device", "cpu"]) == 130
    assert f"the same command goes on with it: deelbo finetune {folder}" in capsys.readouterr().err
    monkeypatch.undo()
    assert main([*words, "--device", "cpu", "--quiet"]) == 0
