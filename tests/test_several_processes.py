"""`deelbo finetune` in several processes: what one process finds, whatever ends on the way."""

import json
import signal

import pytest
import torch
from safetensors.torch import load_file

from shared import processes
from shared.pictures import image_folder

pytestmark = pytest.mark.slow

# With batch-normalisation statistics of each batch, processes that share it would each use those of their part.
FROZEN = ("--batch-norm", "frozen")


def words(folder, out, *options, steps=20, batch=7):
    """A command for a batch that two or four processes cannot share evenly."""
    data = folder / "data"
    if not data.exists():
        image_folder(data)
    model = ["--model", "shared.pictures:small", "--image-size", "28", "--device", "cpu"]
    training = ["--steps", str(steps), "--batch-size", str(batch), "--learning-rates", "0.1,0.01"]
    return ["finetune", str(data), *model, *training, *options, "--out", str(folder / out)]


def finish(started):
    return [process.wait() for process in started]


def run_of(path):
    return json.loads((path / "run.json").read_text())


def said(started):
    return [process.log.read_text() for process in started]


@pytest.mark.parametrize(
    ("number", "options"),
    [
        (4, (*FROZEN, "--draws", "2")),
        (2, (*FROZEN, "--calibrate", "folds=2")),
        (2, (*FROZEN, "--method", "la-lml", "--head-start", "random")),
        (2, ("--method", "probe")),
    ],
)
def test_several_processes_find_what_one_finds(tmp_path, number, options):
    assert processes.command(words(tmp_path, "one", *options)).wait() == 0
    started = processes.group(words(tmp_path, "several", *options), number, tmp_path / "logs")
    assert finish(started) == [0] * number
    assert "test accuracy" in started[0].out.read_text()
    assert said(started)[0].count("3 classes") == 1
    assert not any(process.out.read_text() or process.log.read_text() for process in started[1:])

    one, several = tmp_path / "one", tmp_path / "several"
    assert sorted(path.name for path in several.iterdir()) == sorted(path.name for path in one.iterdir())
    run, other = run_of(one), run_of(several)
    assert (run["about"]["processes"], other["about"]["processes"]) == (1, number)
    assert other["learned"]["learning_rate"] == run["learned"]["learning_rate"]
    assert other["learned"]["objective"] == pytest.approx(run["learned"]["objective"], rel=1e-4)
    assert other["calibration"]["temperature"] == pytest.approx(run["calibration"]["temperature"], rel=1e-3)
    assert other["calibration"]["folds"] == run["calibration"]["folds"]
    for name in ("batch_norm", "head_start", "frozen_features", "dimension"):
        assert other["start"][name] == run["start"][name]
    weights = load_file(one / "model.safetensors")
    for name, value in load_file(several / "model.safetensors").items():
        torch.testing.assert_close(value, weights[name], rtol=1e-4, atol=1e-5)


def begin(folder, out, number, log, **changes):
    """Start a run that writes a checkpoint at every step, and wait until it trains."""
    before = newest(folder / out)
    options = ("--checkpoint-seconds", "0", "--calibrate", "folds=2")
    started = processes.group(words(folder, out, *options, steps=100, **changes), number, folder / log)
    assert processes.wait_until(lambda: newest(folder / out) != before, started[0])
    return started


def newest(run):
    found = [*run.glob("checkpoints/learning-rate-*"), *run.glob("folds/*/checkpoints/learning-rate-*")]
    return max((path.stat().st_mtime_ns for path in found), default=0)


def test_killed_and_interrupted_processes_go_on_bit_for_bit(tmp_path):
    assert finish(begin(tmp_path, "whole", 2, "logs")) == [0, 0]

    started = begin(tmp_path, "run", 2, "one-killed")
    started[1].kill()
    assert started[0].wait() == 1
    assert said(started)[0].count("one of the 2 processes has ended") == 1
    assert "Traceback" not in said(started)[0]

    started = begin(tmp_path, "run", 2, "first-killed")
    started[0].kill()
    assert started[1].wait() == 1
    assert said(started)[1].startswith("deelbo: one of the 2 processes has ended")

    started = begin(tmp_path, "run", 2, "all-killed")
    for process in started:
        process.process.kill()
    assert finish(started) == [-signal.SIGKILL] * 2

    started = begin(tmp_path, "run", 2, "interrupted")
    started[1].kill(signal.SIGINT)  # one process is enough
    assert finish(started) == [130, 130]
    assert said(started)[0].count("interrupted; the run is saved") == 1
    assert not said(started)[1]

    assert finish(begin(tmp_path, "run", 2, "last")) == [0, 0]
    for name in ("model.safetensors", "history.csv", "held_out.safetensors"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()

    again = processes.group(words(tmp_path, "run"), 2, tmp_path / "again")
    assert finish(again) == [2, 2]
    assert "".join(said(again)).count("holds a finished run") == 1


def test_a_run_goes_on_with_another_number_of_processes(tmp_path):
    options = (*FROZEN, "--checkpoint-seconds", "0")
    assert processes.command(words(tmp_path, "one", *options, steps=100)).wait() == 0
    started = processes.group(words(tmp_path, "run", *options, steps=100), 2, tmp_path / "two")
    assert processes.wait_until(lambda: newest(tmp_path / "run"), started[0])
    started[0].kill(signal.SIGINT)
    finish(started)
    started = processes.group(words(tmp_path, "run", *options, steps=100), 4, tmp_path / "four")
    assert finish(started) == [0] * 4
    assert said(started)[0].count("began with 2 processes and goes on with 4") == 1
    assert run_of(tmp_path / "run")["about"]["processes"] == 4
    weights = load_file(tmp_path / "one" / "model.safetensors")
    for name, value in load_file(tmp_path / "run" / "model.safetensors").items():
        torch.testing.assert_close(value, weights[name], rtol=1e-3, atol=1e-4)


def test_a_group_holds_the_lock_and_errors_are_told_once(tmp_path):
    few = processes.group(words(tmp_path, "few", batch=1), 2, tmp_path / "few-logs")
    assert finish(few) == [2, 2]
    assert "".join(said(few)).count("a batch of 1 is too small for 2 processes") == 1
    assert not (tmp_path / "few").exists()

    wrong = processes.group(words(tmp_path, "wrong", "--epochs", "3"), 2, tmp_path / "wrong-logs")
    assert finish(wrong) == [2, 2]
    assert "".join(said(wrong)).count("No such option") == 1

    started = begin(tmp_path, "run", 2, "logs")
    late = processes.group(words(tmp_path, "run"), 2, tmp_path / "late")
    assert finish(late) == [2, 2]
    assert "".join(said(late)).count("another process is at work") == 1
    seen = newest(tmp_path / "run")
    assert processes.wait_until(lambda: newest(tmp_path / "run") != seen, started[0])  # it takes steps, as in `begin`
    started[0].kill(signal.SIGINT)
    assert finish(started) == [130, 130]
