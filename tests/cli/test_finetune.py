"""`deelbo finetune` as a user types it, in this process."""

import csv
import json
import math
import re

import pytest

import deelbo
from deelbo.cli import main
from deelbo.cli.finetune import _show, _variances
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
    _show(result, {"balanced_accuracy": 0.87654}, image_run / "run")
    printed = capsys.readouterr().out
    lines = [re.split(r"\s{2,}|\t", line.strip()) for line in printed.splitlines()]
    shown = {line[0]: line[-1] for line in lines}
    assert shown["test accuracy, mean over classes"] == "0.8765"
    assert shown["learning rate"] == f"{result.learning_rate:g}"
    assert shown["prior variance, head"] == f"{result.prior_variances['head']:.3g}"
    assert shown["σ posterior scale"] == f"{result.scale:.3g}"
    assert shown["report"] == str(image_run / "run" / "report.html")


@pytest.mark.filterwarnings("ignore:posterior")
def test_options_for_exact_comparison(tmp_path):
    out = tmp_path / "run"
    words = ["finetune", str(image_folder(tmp_path / "data", train=10)), "--model", "shared.pictures:small"]
    words += ["--out", str(out), "--steps", "4", "--batch-size", "6", "--learning-rates", "0.03", "--image-size", "28"]
    words += ["--per-class", "6", "--resize", "square", "--normalize", "training-set", "--draws", "2"]
    assert main([*words, "--posterior", "diagonal", "--device", "cpu", "--quiet"]) == 0
    run = json.loads((out / "run.json").read_text())
    assert (run["settings"]["posterior"], run["settings"]["draws"], run["num_data"]) == ("diagonal", 2, 18)
    assert (run["about"]["per_class"], run["about"]["resize"], run["about"]["normalize"]) == (
        6,
        "square",
        "training-set",
    )
    assert run["model"]["image"]["square"] is True
    result = deelbo.load(out)
    assert result.reader.image.square
    assert result.posterior.scale.numel() == result.num_params
    photo = next((tmp_path / "data" / "test").rglob("*.png"))
    assert result.predict(photo, samples=2).shape == (1, 3)
