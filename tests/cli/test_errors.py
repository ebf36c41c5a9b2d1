"""Bad input: exit code 2 and one line on stderr that names the culprit, before any training."""

import json
import shutil

import pytest
import safetensors.torch
import timm

from deelbo.cli import main
from shared.pictures import image_folder, picture, text_table


def fails(capsys, arguments, *words, code=2):
    assert main([str(a) for a in arguments]) == code
    error = capsys.readouterr().err.strip()
    line = error.splitlines()[-1]
    assert line.startswith("deelbo: ")
    assert "Traceback" not in error
    for word in words:
        assert word in line
    return line


def command(data, out, *more, model="shared.pictures:small"):
    return [
        "finetune",
        data,
        "--model",
        model,
        "--out",
        out,
        "--image-size",
        28,
        "--steps",
        4,
        "--device",
        "cpu",
        *more,
    ]


def test_data(tmp_path, capsys):
    out = tmp_path / "run"
    fails(capsys, command(tmp_path / "none", out), "none")
    folder = image_folder(tmp_path / "a")
    (folder / "train" / "white").mkdir()
    fails(capsys, command(folder, out), "class white is empty")
    fails(capsys, command(image_folder(tmp_path / "b", colours=["red"]), out), "a single class (red)")
    folder = image_folder(tmp_path / "c")
    (folder / "test" / "violet").mkdir()
    picture("red").save(folder / "test" / "violet" / "1.png")
    fails(capsys, command(folder, out), "never saw: violet")
    table = text_table(tmp_path / "rows.csv")
    fails(capsys, command(table, out, "--text-column", "body"), 'no column "body"', "text, label")
    fails(capsys, command(image_folder(tmp_path / "d"), out, "--train-size", 99), "--train-size 99", "18")
    assert not out.exists()


def test_unreadable_images(tmp_path, capsys):
    folder, out = image_folder(tmp_path / "data"), tmp_path / "run"
    cut = folder / "train" / "red" / "3.png"
    cut.write_bytes(cut.read_bytes()[:70])
    fails(capsys, command(folder, out), str(cut), "--skip-bad")
    whole = folder / "test" / "red" / "1.png"
    content = whole.read_bytes()
    whole.write_bytes(content[:70])
    shutil.copy(folder / "train" / "red" / "2.png", cut)
    fails(capsys, command(folder, out), str(whole))  # of the test set too, before training
    whole.write_bytes(content)
    cut.unlink()
    cut.symlink_to("nowhere.png")
    fails(capsys, command(folder, out), str(cut), "--skip-bad")
    assert not out.exists()
    assert main([str(a) for a in command(folder, out, "--skip-bad", "--batch-size", 4)]) == 0
    assert "1 unreadable image left out" in capsys.readouterr().err
    assert json.loads((out / "run.json").read_text())["skipped"] == [str(cut)]
    for file in (folder / "train" / "red").iterdir():
        file.write_bytes(b"bad")
    fails(capsys, command(folder, tmp_path / "other", "--skip-bad"), "no training example of class red")


def test_models_and_weights(tmp_path, capsys):
    folder, out = image_folder(tmp_path / "data"), tmp_path / "run"
    fails(capsys, command(folder, out, model="timm:resnet5"), "unknown model", "resnet50")
    fails(capsys, command(folder, out, model="resnet50"), "unknown model")
    other = timm.create_model("resnet14t", num_classes=3).state_dict()
    safetensors.torch.save_file(other, tmp_path / "other.safetensors")
    arguments = command(folder, out, "--weights", tmp_path / "other.safetensors", model="timm:resnet10t")
    fails(capsys, arguments, "other.safetensors does not fit ResNet", "layer1")
    fails(capsys, command(folder, out, "--weights", "no.pth"), "no.pth: no such file")
    assert not out.exists()


def test_space_and_folders(tmp_path, capsys, monkeypatch):
    folder, out = image_folder(tmp_path / "data"), tmp_path / "run"
    small = shutil.disk_usage(tmp_path)._replace(free=1000)
    with monkeypatch.context() as patch:
        patch.setattr("shutil.disk_usage", lambda path: small)
        fails(capsys, command(folder, out), "no space", "GB")
    assert not out.exists()
    out.mkdir()
    (out / "thesis.tex").touch()
    fails(capsys, command(folder, out), "holds something else than a run")
    assert (out / "thesis.tex").exists()
    fails(capsys, command(folder, out / "thesis.tex"), "is a file")
    done = tmp_path / "done"
    assert main([str(a) for a in command(folder, done, "--quiet")]) == 0
    fails(capsys, command(folder, done), "holds a finished run")
    run = json.loads((done / "run.json").read_text())
    (done / "run.json").write_text(json.dumps({**run, "schema": 1}))
    fails(capsys, ["predict", done, folder], "schema 1", "reads")
    (done / "run.json").write_text("{")
    fails(capsys, ["evaluate", done, folder], "run.json is damaged")
    (done / "run.json").write_text(json.dumps(run))
    weights = (done / "model.safetensors").read_bytes()
    (done / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    fails(capsys, ["predict", done, folder], "model.safetensors is damaged")
    fails(capsys, ["report", tmp_path], "is no run")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--method", "elbow"], ["elbow", "de-elbo, elbo, la-lml, map"]),
        (["--learning-rates", "0.1;0.2"], ["--learning-rates 0.1;0.2"]),
        (["--prior-variances", "3"], ["--prior-variances 3"]),
        (["--method", "map"], ["--prior-variances"]),
        (["--steps", "many"], ["--steps"]),
        (["--no-such-option"], ["--no-such-option"]),
        (["--precision", "int3"], ["int3"]),
        (["--log", "nowhere"], ["nowhere"]),
    ],
)
def test_options(tmp_path, capsys, more, words):
    fails(capsys, [*command(image_folder(tmp_path / "data"), tmp_path / "run"), *more], *words)


def test_commands(capsys, tmp_path):
    fails(capsys, ["finetune"], "data")
    fails(capsys, ["train"], "No such command 'train'")
    fails(capsys, ["predict", tmp_path, "x"], "is no run")


def test_debug_shows_the_traceback(tmp_path):
    with pytest.raises(FileNotFoundError):
        main([str(a) for a in command(tmp_path / "none", tmp_path / "run", "--debug")])


def test_predict_input(tmp_path, capsys):
    folder, out = image_folder(tmp_path / "data"), tmp_path / "run"
    assert main([str(a) for a in command(folder, out, "--quiet")]) == 0
    fails(capsys, ["predict", out, tmp_path / "none.png"], "none.png: no such file")
    (tmp_path / "bad.png").write_bytes(b"bad")
    fails(capsys, ["predict", out, tmp_path / "bad.png"], "bad.png cannot be read as an image")
    (tmp_path / "empty").mkdir()
    fails(capsys, ["predict", out, tmp_path / "empty"], "no image in")
    fails(capsys, ["evaluate", out, text_table(tmp_path / "rows.csv")], "takes images")
