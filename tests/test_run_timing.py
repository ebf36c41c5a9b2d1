"""A run that is given a time: its plan, and that it is the run of so many steps."""

import functools
import hashlib
import json
import signal
import time

import pytest
import torch

import deelbo
from deelbo import Settings, events, finetuning
from deelbo.run_timing import LONG, Timing, check_time
from deelbo.training.time_budget import Work
from shared.clocks import Ticking
from shared.digits import FAST, digits, network, quick
from shared.processes import Started, wait_until

TIMED = {name: value for name, value in FAST.items() if name != "steps"}


def timed(seconds=0.01, **options):
    """Fine-tune with a time, by a clock that ticks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finetuning, "Timing", functools.partial(Timing, clock=Ticking(seconds)))
        return deelbo.finetune(network(), digits()[0], "4", **{**TIMED, "time": "4s", **options})


def train(folder):
    timed(out=folder, time="5s", checkpoint_seconds=0.02)


def weights(result):
    return {name: value.clone() for name, value in result.model.state_dict().items()}


def test_the_run_is_the_one_of_so_many_steps():
    """As if the measured steps had never happened."""
    seen = []
    found = timed(listener=seen.append)
    steps = found.settings.steps
    assert found.plan["steps"] == steps
    assert 20 < steps < 6000
    assert found.plan["time"] == "4s"
    assert found.plan["seconds"] <= 4
    plain = quick(steps=steps)
    assert plain.plan is None
    assert found.history == plain.history
    assert (found.objective, found.temperature) == (plain.objective, plain.temperature)
    assert all(torch.equal(value, weights(plain)[name]) for name, value in weights(found).items())
    planned = [event for event in seen if isinstance(event, events.TrainingPlanned)]
    assert len(planned) == 1
    assert planned[0].summary.startswith(f"Sequential, 4,938 weights; de-elbo, {steps} steps of 32, 2 learning rates")
    assert "this takes about" in planned[0].summary


def test_the_plan_is_kept_in_the_folder_and_in_the_result(tmp_path):
    def stop(event):
        if isinstance(event, events.StepTaken) and event.step == 9:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        timed(out=tmp_path / "run", listener=stop, checkpoint_seconds=0.0)
    stored = json.loads((tmp_path / "run" / "run.json").read_text())
    assert stored["status"] == "training"
    assert stored["plan"]["steps"] == stored["settings"]["steps"]
    seen = []
    result = timed(0.1, out=tmp_path / "run", listener=seen.append)  # a slower machine does not change it
    assert result.plan == stored["plan"] == deelbo.load(tmp_path / "run", network()).plan
    planned = next(event.summary for event in seen if isinstance(event, events.TrainingPlanned))
    assert f"{stored['plan']['steps']} steps of 32" in planned
    assert next(event.step for event in seen if isinstance(event, events.StepTaken)) == 9
    assert result.history == quick(steps=stored["plan"]["steps"]).history


def test_another_time_is_refused(tmp_path):
    def stop(event):
        if isinstance(event, events.StepTaken):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        timed(out=tmp_path / "run", listener=stop)
    with pytest.raises(ValueError, match=r"with other settings \(time: '4s' -> '10s'\): continue it with its own"):
        timed(out=tmp_path / "run", time="10s")
    with pytest.raises(ValueError, match=r"steps: \d+ -> 60; time: '4s' -> None"):
        quick(out=tmp_path / "run")
    timed(out=tmp_path / "run", time="0h4s")
    with pytest.raises(KeyboardInterrupt):
        quick(out=tmp_path / "other", listener=stop, steps=6000)
    with pytest.raises(ValueError, match=r"\(time: None -> '4s'\)"):
        timed(out=tmp_path / "other")


@pytest.mark.slow
def test_killed_and_continued_it_ends_with_the_same_bits(tmp_path):
    folder, kills = tmp_path / "killed", 0
    while kills < 3:
        before = _newest(folder)
        process = Started(train, folder)
        assert wait_until(lambda before=before: _newest(folder) != before, process)
        time.sleep(0.05 * kills)
        assert process.kill() == -signal.SIGKILL
        kills += 1
    assert Started(train, folder).wait() == 0
    steps = json.loads((folder / "run.json").read_text())["plan"]["steps"]
    quick(out=tmp_path / "whole", steps=steps)
    assert _hash(folder) == _hash(tmp_path / "whole")


def _newest(folder):
    times = [path.stat().st_mtime_ns for path in folder.glob("checkpoints/learning-rate*")]
    return max(times, default=0)


def _hash(folder):
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def test_a_time_that_is_too_short_leaves_nothing(tmp_path):
    with pytest.raises(ValueError, match="time='1s' is too short"):
        timed(0.1, time="1s", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_folds_are_part_of_the_time():
    alone, folded = timed(time="20s"), timed(time="20s", calibrate="folds=3")
    assert folded.calibration.folds == 3
    assert folded.settings.steps < alone.settings.steps / 2


def test_contradictions():
    check_time(None, {"steps": 3, "method": "probe"})
    check_time("10m", {"method": "map"})
    with pytest.raises(ValueError, match="time='10m' contradicts steps=500: the time decides"):
        check_time("10m", {"steps": 500})
    with pytest.raises(ValueError, match="of no use for method=probe, which takes no training steps"):
        check_time("10m", {"method": "probe"})
    with pytest.raises(ValueError, match="time='10': write hours"):
        quick(time="10")
    with pytest.raises(ValueError, match="time='10m' contradicts steps=60"):
        quick(time="10m")


@pytest.mark.parametrize(("seconds", "advises", "lines"), [(LONG + 1, True, 2), (LONG + 1, False, 1), (60, True, 1)])
def test_a_long_run_comes_with_advice(seconds, advises, lines):
    seen = []
    Timing(advises=advises).announce("net", Work(Settings(), 1000), seconds, seen.append)
    assert len(seen) == lines
    expected = "1 h" if seconds > LONG else "1 min"
    assert seen[0].summary == (
        f"net; de-elbo, 6000 steps of 128, 3 learning rates: 7740 steps in all; this takes about {expected}"
    )
    assert all("time=30m" in note.text for note in seen[1:])
