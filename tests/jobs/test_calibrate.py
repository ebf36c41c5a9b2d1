"""Calibration of finished runs, on real folders and tables."""

import json
import shutil

import pytest
import torch

import deelbo
from deelbo.cli import main
from deelbo.jobs.calibrate import Source, calibrate_job
from deelbo.run_folder import RunFolder
from shared.pictures import COLOURS, picture


@pytest.fixture
def copied(image_run, tmp_path):
    """A copy of the run on images, which tests may change."""
    return shutil.copytree(image_run / "run", tmp_path / "run")


def test_the_free_temperature_is_that_of_training(copied):
    before = RunFolder(copied).read()
    RunFolder(copied).write_calibration({}, None)
    assert deelbo.load(copied).temperature == 1
    calibration, assessment = calibrate_job(copied, Source())
    assert calibration.source == before["calibration"]["source"] == "training set"
    assert calibration.temperature == pytest.approx(before["calibration"]["temperature"], rel=1e-3)
    assert assessment["metrics"] == pytest.approx(before["metrics"], rel=1e-3)


def test_folds_and_prediction_sets(copied, image_run, capsys):
    images = sorted(str(path) for path in (image_run / "data" / "test").rglob("*.png"))
    assert main(["predict", str(copied), images[0], "--alpha", "0.2"]) == 2
    assert "deelbo calibrate RUN" in capsys.readouterr().err
    assert main(["calibrate", str(copied), "--folds", "3", "--fold-steps", "5", "--device", "cpu"]) == 0
    printed = capsys.readouterr().out
    run = json.loads((copied / "run.json").read_text())
    assert f"{run['calibration']['temperature']:.3g} (from 3 folds)" in printed
    assert not (copied / "folds").exists()
    result = deelbo.load(copied)
    assert len(result.calibration.scores) == result.num_data
    assert main(["predict", str(copied), *images, "--alpha", "0.2", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    sets = result.predict_sets([deelbo.data.Path(path) for path in images], alpha=0.2)
    for row, inside in zip(rows, sets.tolist(), strict=True):
        assert sorted(row["set"]) == sorted(name for name, is_in in zip(result.names, inside, strict=True) if is_in)
        assert row["set"][0] == row["predicted"]
    assert main(["predict", str(copied), images[0], "--alpha", "0.2", "--temperature", "1"]) == 2
    capsys.readouterr()
    assert main(["predict", str(copied), images[0], "--alpha", "0.01"]) == 0
    output = capsys.readouterr()
    assert "18 unseen examples are too few" in output.err
    assert all(name in output.out for name in result.names)


def test_held_out_data(copied, image_run, tmp_path, capsys):
    training = shutil.copytree(image_run / "data" / "train", tmp_path / "copied")
    assert main(["calibrate", str(copied), "--held-out", str(training)]) == 2
    assert "the run was trained on 18 of these 18 examples" in capsys.readouterr().err
    held_out = tmp_path / "held-out"
    for colour in COLOURS:
        (held_out / colour).mkdir(parents=True)
        for i in range(3):
            picture(colour, 20 + i).save(held_out / colour / f"{i}.png")
    assert main(["calibrate", str(copied), "--held-out", str(held_out)]) == 0
    result = deelbo.load(copied)
    assert 0.05 < result.temperature < 1  # all nine are right, which does not make the network certain of everything
    assert result.calibration.source == "held-out examples"
    assert result.calibration.examples == 9
    examples = deelbo.data.load_labelled(str(held_out), "image", result.reader.targets)
    dataset = result.reader.dataset(examples)
    best = result.evaluate(dataset)["nll"]
    assert best < result.evaluate(dataset, temperature=1)["nll"]
    assert result.calibration.unseen["nll"] == pytest.approx(best)


def test_temperature_in_every_command(copied, image_run, tmp_path, capsys):
    folder = RunFolder(copied)
    folder.write_calibration({**deelbo.load(copied).calibration.as_dict(), "temperature": 3.0}, None)
    data = str(image_run / "data")
    found = {}
    for option in ([], ["--temperature", "1"], ["--temperature", "3"]):
        assert main(["evaluate", str(copied), data, "--json", *option]) == 0
        found[tuple(option)] = json.loads(capsys.readouterr().out)
    assert found[()] == found["--temperature", "3"]
    assert found[()]["nll"] != found["--temperature", "1"]["nll"]
    assert found[()]["accuracy"] == found["--temperature", "1"]["accuracy"]
    assert main(["evaluate", str(copied), data, "--temperature", "0"]) == 2
    assert "--temperature 0.0, but it must be a positive number" in capsys.readouterr().err


def test_a_better_calibration_is_not_replaced_silently(copied, capsys):
    calibrate_job(copied, Source(folds=2, fold_steps=3), device="cpu")
    scores = deelbo.load(copied).calibration.scores
    assert main(["calibrate", str(copied)]) == 2
    assert "--training-set" in capsys.readouterr().err
    torch.testing.assert_close(deelbo.load(copied).calibration.scores, scores)
    assert main(["calibrate", str(copied), "--training-set"]) == 0
    assert deelbo.load(copied).calibration.source == "training set"
    assert not (copied / "held_out.safetensors").exists()


def test_scores_of_another_temperature_are_not_used(copied):
    """As after a crash between the two files."""
    calibrate_job(copied, Source(folds=2, fold_steps=3), device="cpu")
    run = json.loads((copied / "run.json").read_text())
    run["calibration"]["temperature"] = 17.0
    (copied / "run.json").write_text(json.dumps(run))
    assert deelbo.load(copied).calibration.scores is None


def test_the_dimension_of_the_run_is_used(copied):
    """With more effective dimensions the temperature is larger; a run from before them is refused."""
    run = json.loads((copied / "run.json").read_text())
    found = []
    for dimension in (1.0, 1000.0):
        run["start"] |= {"dimension": dimension, "frozen_features": {}}
        (copied / "run.json").write_text(json.dumps(run))
        found.append(calibrate_job(copied, Source())[0].temperature)
    assert found[1] > 2 * found[0]
    del run["start"]["dimension"]
    (copied / "run.json").write_text(json.dumps(run))
    with pytest.raises(ValueError, match="version without calibration"):
        calibrate_job(copied, Source())


def test_errors(copied, image_run, tmp_path, capsys):
    for wrong in (
        ["--folds", "1"],
        ["--fold-steps", "3"],
        ["--folds", "2", "--held-out", "x"],
        ["--held-out", str(tmp_path / "none")],
        ["--data", str(image_run / "data" / "test")],
    ):
        assert main(["calibrate", str(copied), *wrong]) == 2, wrong
    assert "not those that the run was trained on" in capsys.readouterr().err
    assert main(["calibrate", str(tmp_path / "no" / "run")]) == 2
    assert not (tmp_path / "no").exists()


def test_a_run_on_its_only_data_cannot_be_its_held_out_data(text_run, tmp_path):
    run = shutil.copytree(text_run / "run", tmp_path / "run")
    with pytest.raises(ValueError, match="was trained on these"):
        calibrate_job(run, Source(held_out=str(text_run / "rows.csv")))


def test_texts_by_folds(text_run, tmp_path):
    run = shutil.copytree(text_run / "run", tmp_path / "run")
    calibration, assessment = calibrate_job(run, Source(folds=2, fold_steps=3), device="cpu")
    assert calibration.examples == 18
    assert assessment["temperature"] == calibration.temperature
    assert torch.isfinite(calibration.scores).all()


def test_finetune_with_folds_goes_on_after_training(image_run, tmp_path, capsys, monkeypatch):
    """The run is killed between training and folds: the same command makes the folds."""
    command = ["finetune", str(image_run / "data"), "--model", "shared.pictures:small", "--image-size", "28"]
    command += ["--steps", "5", "--batch-size", "6", "--learning-rates", "0.1", "--device", "cpu"]
    command += ["--out", str(tmp_path / "run"), "--calibrate", "folds=2"]

    def killed(self):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("deelbo.folds.FoldRuns.calibrate", killed)
        assert main(command) == 130
    assert main(command) == 0
    assert deelbo.load(tmp_path / "run").calibration.folds == 2
    assert "(from 2 folds)" in capsys.readouterr().out
    assert main([*command[:-1], "all"]) == 2
    assert "--calibrate all, but it is one of" in capsys.readouterr().err


def test_several_processes_are_refused(copied, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="runs in one process"):
        calibrate_job(copied, Source(2))
