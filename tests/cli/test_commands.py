"""Each command as a user types it, in this process, and what it prints."""

import csv
import io
import json
import subprocess
import sys

import pytest
import torch
from PIL import Image

import deelbo
from deelbo.cli import main
from shared.pictures import Small, image_folder, text_table, tiny_bert

FAST = ["--steps", "20", "--batch-size", "6", "--learning-rates", "0.1,0.01", "--device", "cpu"]


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    data = image_folder(folder / "data")
    command = [
        "finetune",
        str(data),
        "--model",
        "shared.pictures:small",
        "--image-size",
        "28",
        "--out",
        str(folder / "run"),
    ]
    assert main([*command, *FAST, "--log", "tensorboard"]) == 0
    return folder


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    data = text_table(folder / "rows.csv", rows=24)
    command = ["finetune", str(data), "--model", f"hf:{tiny_bert(folder / 'bert')}", "--out", str(folder / "run")]
    assert main([*command, *FAST, "--test-fraction", "0.25", "--quiet"]) == 0
    return folder


def test_finetune_writes_the_run(images, capsys):
    run = images / "run"
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


def test_tensorboard_has_the_learned_values(images):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(next((images / "run").rglob("events.out.tfevents*")).parent))
    events.Reload()
    for name in ("nll", "kl", "variance_backbone", "variance_head", "scale", "kappa", "accuracy"):
        assert f"0.1/{name}" in events.Tags()["scalars"]
    with (images / "run" / "history.csv").open() as file:
        first = next(csv.DictReader(file))
    assert events.Scalars("0.1/nll")[0].value == pytest.approx(float(first["nll"]), rel=1e-5)


def test_predict_images(images, capsys, monkeypatch):
    run, test = str(images / "run"), images / "data" / "test"
    assert main(["predict", run, str(test), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 9
    assert sum(rows[0]["probabilities"].values()) == pytest.approx(1)
    assert set(rows[0]["probabilities"]) == {"blue", "green", "red"}
    one = str(test / "red" / "0.png")
    assert main(["predict", run, one, "--top", "2", "--samples", "3"]) == 0
    name, *guesses = capsys.readouterr().out.strip().split("\t")
    assert name == one
    assert len(guesses) == 4
    assert main(["predict", run, one, "--csv", "--top", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "input,predicted,probability,predicted_2,probability_2"
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{one}\n\n"))
    assert main(["predict", run, "-"]) == 0
    assert capsys.readouterr().out.startswith(one)


def test_predict_texts(texts, capsys, monkeypatch, tmp_path):
    run = str(texts / "run")
    monkeypatch.setattr("sys.stdin", io.StringIO("ball goal team\nbank stock\n"))
    assert main(["predict", run, "-"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    out = tmp_path / "answers.csv"
    assert main(["predict", run, str(texts / "rows.csv"), "--out", str(out)]) == 0
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 24
    assert set(rows[0]) == {"text", "label", "predicted", "probability"}
    assert main(["predict", run, str(texts / "rows.csv"), "--out", str(out)]) == 2
    assert "exists; choose a new file" in capsys.readouterr().err


def test_columns_of_the_table_stay(texts, capsys, tmp_path):
    table = tmp_path / "rows.csv"
    table.write_text("text,predicted\nball goal,mine\n")
    assert main(["predict", str(texts / "run"), str(table), "--json"]) == 0
    row = json.loads(capsys.readouterr().out)[0]
    assert row["predicted"] == "mine"
    assert row["deelbo_predicted"] in ("sport", "money")
    assert main(["predict", str(texts / "run"), str(table), "--json", "--csv"]) == 2


def test_predictions_without_the_unreadable(images, capsys, tmp_path):
    (tmp_path / "bad.png").write_bytes(b"bad")
    good = str(images / "data" / "test" / "red" / "0.png")
    assert main(["predict", str(images / "run"), str(tmp_path / "bad.png"), good, "--skip-bad"]) == 0
    printed = capsys.readouterr()
    assert [line.split("\t")[0] for line in printed.out.splitlines()] == [good]
    assert "bad.png cannot be read" in printed.err


def test_python_predictions_take_what_people_have(images):
    result = deelbo.load(images / "run")
    path = images / "data" / "test" / "red" / "0.png"
    expected = result.predict([path])
    image = Image.open(path)
    for inputs in (path, str(path), iter([path]), [path.read_bytes()], path.read_bytes(), image, [image]):
        torch.testing.assert_close(result.predict(inputs), expected)
    batch = result.reader.unlabelled([path])
    tensor = batch.collate([batch[0]])[0]
    for inputs in (tensor, tensor.numpy(), list(tensor)):
        torch.testing.assert_close(result.predict(inputs), expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="nothing to predict"):
        result.predict([])
    with pytest.raises(ValueError, match="samples=-1"):
        result.predict(tensor, samples=-1)


def test_evaluating_on_training_rows_is_said(texts, capsys):
    assert main(["evaluate", str(texts / "run"), str(texts / "rows.csv")]) == 0
    assert "trained on are among these" in capsys.readouterr().err
    assert main(["report", str(texts / "run"), "--data", str(texts / "rows.csv")]) == 0
    assert "trained on are among these" in capsys.readouterr().err


def test_evaluate_and_python_agree(images, texts, capsys):
    for folder, data in ((images, images / "data"), (texts, texts / "rows.csv")):
        assert main(["evaluate", str(folder / "run"), str(data), "--json", "--samples", "2"]) == 0
        printed = json.loads(capsys.readouterr().out)
        result = deelbo.load(folder / "run")
        examples = deelbo.data.load_labelled(str(data), result.reader.kind, result.reader.targets)
        assert result.evaluate(result.reader.dataset(examples), samples=2) == pytest.approx(printed)
        p = result.predict(examples.inputs[:2])
        torch.testing.assert_close(p, result.predict(list(examples.inputs[:2])))
    assert main(["evaluate", str(images / "run"), str(images / "data")]) == 0
    stored = json.loads((images / "run" / "run.json").read_text())["metrics"]
    assert f"accuracy               {stored['accuracy']:.4f}" in capsys.readouterr().out


def test_loaded_predictions_are_those_of_the_run(images):
    run = json.loads((images / "run" / "run.json").read_text())
    assert deelbo.load(images / "run").settings.steps == run["settings"]["steps"]
    plain = Small(3)
    again = deelbo.load(images / "run", plain)
    assert again.model is plain
    with pytest.raises(ValueError, match="another architecture"):
        deelbo.load(images / "run", Small(4))


def test_report_and_export(images, texts, capsys, tmp_path):
    before = (images / "run" / "report.html").read_text()
    (images / "run" / "report.html").unlink()
    assert main(["report", str(images / "run")]) == 0
    assert (images / "run" / "report.html").read_text() == before
    assert main(["report", str(images / "run"), "--data", str(images / "data" / "train")]) == 0
    assert "On 18 test examples" in (images / "run" / "report.html").read_text()
    assert main(["export", str(texts / "run"), str(tmp_path / "bert")]) == 0
    import transformers

    exported = transformers.pipeline("text-classification", str(tmp_path / "bert"))
    label = exported("ball goal")[0]
    expected = deelbo.load(texts / "run").predict(["ball goal"])[0]
    assert label["score"] == pytest.approx(expected.max().item(), abs=1e-5)
    assert label["label"] == ["money", "sport"][expected.argmax()]
    assert main(["export", str(images / "run"), str(tmp_path / "small")]) == 0
    import safetensors.torch

    Small(3).load_state_dict(safetensors.torch.load_file(tmp_path / "small" / "model.safetensors"))
    capsys.readouterr()
    assert main(["export", str(images / "run"), str(tmp_path / "small")]) == 2


def test_the_installed_command():
    done = subprocess.run([sys.executable, "-m", "deelbo", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"deelbo {deelbo.__version__}"
