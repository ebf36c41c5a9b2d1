"""`deelbo finetune` as a user types it, in this process."""

import csv
import functools
import json
import math
import re

import pytest

import deelbo
from deelbo import events
from deelbo.cli import main
from deelbo.cli.finetune import _show, _variances
from deelbo.cli.progress import RunProgress
from deelbo.run_timing import Timing
from shared.clocks import Ticking
from shared.pictures import image_folder


def test_finetune_writes_the_run(image_run, capsys):
    run = image_run / "run"
    files = {path.name for path in run.iterdir()}
    assert files >= {"run.json", "history.csv", "model.safetensors", "posterior.safetensors", "report.html"}
    assert "checkpoints" not in files
    assert list(run.rglob("events.out.tfevents*"))
    stored = json.loads((run / "run.json").read_text())
    assert set(stored["metrics"]) == {"accuracy", "balanced_accuracy", "nll", "ece"}
    assert stored["model"]["targets"]["names"] == ["blue", "green", "red"]
    assert stored["settings"]["seed"] == 0
    assert 0 < stored["speed"]["outside_network"] < 1
    assert stored["speed"]["examples_per_second"] > 0


def test_tensorboard_has_the_learned_values(image_run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(next((image_run / "run").rglob("events.out.tfevents*")).parent))
    events.Reload()
    for name in ("nll", "kl", "variance_backbone", "variance_head", "scale", "kappa", "accuracy"):
        assert f"0.1/{name}" in events.Tags()["scalars"]
    with (image_run / "run" / "history.csv").open() as file:
        first = next(csv.DictReader(file))
    assert events.Scalars("0.1/nll")[0].value == pytest.approx(float(first["nll"]), rel=1e-5)


def test_prior_variances_are_read():
    assert _variances("backbone=0.1, head=inf") == {"backbone": 0.1, "head": math.inf}
    for text in ("3", "head=", "head=1=2", "backbone:1"):
        with pytest.raises(ValueError, match=f"prior_variances={text!r}: write GROUP=NUMBER"):
            _variances(text)


def test_what_a_run_learned_is_printed(image_run, capsys):
    result = deelbo.load(image_run / "run")
    _show(result, {"balanced_accuracy": 0.87654}, image_run / "run", 90.0)
    printed = capsys.readouterr().out
    lines = [re.split(r"\s{2,}|\t", line.strip()) for line in printed.splitlines()]
    shown = {line[0]: line[-1] for line in lines}
    assert shown["test accuracy, mean over classes"] == "0.8765"
    assert shown["learning rate"] == f"{result.learning_rate:g}"
    assert shown["prior variance, head"] == f"{result.prior_variances['head']:.3g}"
    assert shown["σ posterior scale"] == f"{result.scale:.3g}"
    assert shown["waiting for data"] == f"{result.speed['data']:.1%} of a step"
    assert shown["time of this command"] == "1.5 min"
    assert shown["report"] == str(image_run / "run" / "report.html")


@pytest.mark.filterwarnings("ignore:posterior")
def test_options_for_exact_comparison(tmp_path):
    out = tmp_path / "run"
    words = ["finetune", str(image_folder(tmp_path / "data", train=10)), "--model", "shared.pictures:small"]
    words += ["--out", str(out), "--steps", "4", "--batch-size", "6", "--learning-rates", "0.03", "--image-size", "28"]
    words += ["--per-class", "6", "--resize", "square", "--normalize", "training-set", "--draws", "2"]
    assert main([*words, "--posterior", "diagonal", "--device", "cpu", "--quiet", "--workers", "1"]) == 0
    run = json.loads((out / "run.json").read_text())
    assert (run["settings"]["posterior"], run["settings"]["draws"], run["num_data"]) == ("diagonal", 2, 18)
    assert (run["about"]["per_class"], run["about"]["resize"], run["about"]["normalize"]) == (
        6,
        "square",
        "training-set",
    )
    assert run["model"]["image"]["square"] is True
    assert run["speed"]["workers"] == 1
    assert "waiting for data, which 1 worker process reads" in (out / "report.html").read_text()
    result = deelbo.load(out)
    assert result.reader.image.square
    assert result.posterior.scale.numel() == result.num_params
    photo = next((tmp_path / "data" / "test").rglob("*.png"))
    assert result.predict(photo, samples=2).shape == (1, 3)


def test_a_time_instead_of_steps(tmp_path, capsys, monkeypatch):
    clock = Ticking(0.05)
    monkeypatch.setattr("deelbo.jobs.finetune.Timing", functools.partial(Timing, clock=clock))
    data, run = str(image_folder(tmp_path / "data")), tmp_path / "run"
    words = ["finetune", data, "--model", "shared.pictures:small", "--image-size", "28", "--batch-size", "6"]
    words += ["--samples", "2", "--device", "cpu", "--out", str(run)]
    assert main([*words, "--time", "10m", "--steps", "40"]) == 2
    assert "--time 10m contradicts --steps 40: the time decides how many steps are taken" in capsys.readouterr().err
    assert main([*words, "--time", "10"]) == 2
    assert "--time 10: write hours, minutes or seconds with their unit" in capsys.readouterr().err
    assert main([*words, "--time", "1s"]) == 2
    assert re.search(r"--time 1s is too short: .* need --time \d+s in all", capsys.readouterr().err)
    assert not run.exists()
    assert main([*words, "--time", "14s"]) == 0
    printed = capsys.readouterr()
    stored = json.loads((run / "run.json").read_text())
    steps = stored["plan"]["steps"]
    assert stored["settings"]["steps"] == steps < 6000
    assert stored["about"]["time"] == stored["plan"]["time"] == "14s"
    assert f"de-elbo, {steps} steps of 6, 3 learning rates" in printed.err
    assert "(14s were given)" in printed.out
    assert f"14s were given: {steps} steps" in (run / "report.html").read_text()
    assert deelbo.load(run).plan == stored["plan"]


def test_every_run_says_how_long_it_takes(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("deelbo.jobs.finetune.Timing", functools.partial(Timing, clock=Ticking(1.0)))
    data, out = str(image_folder(tmp_path / "data")), str(tmp_path / "run")
    words = ["finetune", data, "--model", "shared.pictures:small", "--image-size", "28", "--batch-size", "6"]

    def stop(event):
        if isinstance(event, events.StepTaken):
            raise KeyboardInterrupt

    shown = RunProgress.__call__
    monkeypatch.setattr(RunProgress, "__call__", lambda self, event: (shown(self, event), stop(event)))
    assert main([*words, "--out", out, "--device", "cpu"]) == 130
    said = capsys.readouterr().err
    assert re.search(r"6000 steps of 6, 3 learning rates: 7740 steps in all; this takes about [\d.]+ \w+\n", said)
    assert "this is long: --time 30m, for example, takes as many steps as fit" in said
    assert main([*words, "--out", out, "--device", "cpu"]) == 130
    again = capsys.readouterr().err
    assert re.search(r"7740 steps in all; this takes about [\d.]+ \w+\n", again)
    probe = [*words, "--method", "probe", "--device", "cpu"]
    assert main([*probe, "--out", str(tmp_path / "probe")]) == 0
    assert re.search(r"probe, no training steps; this takes about [\d.]+ \w+\n", capsys.readouterr().err)
    assert main([*probe, "--time", "5m", "--out", str(tmp_path / "other")]) == 2
    assert "--time 5m is of no use for --method probe" in capsys.readouterr().err
