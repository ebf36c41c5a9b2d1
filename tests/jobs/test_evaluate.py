"""A finished run on other labelled data."""

import shutil

import pytest

import deelbo
from deelbo.events import Note
from deelbo.jobs.evaluate import Reading, evaluate_job, same_data
from shared.digits import quick


def test_other_columns_than_in_training(text_run, tmp_path):
    rows = (text_run / "rows.csv").read_text().replace("text,label", "body,topic")
    (tmp_path / "other.csv").write_text(rows)
    found = evaluate_job(text_run / "run", str(tmp_path / "other.csv"), 0, Reading(None, "body", "topic"))
    (tmp_path / "same.csv").write_text((text_run / "rows.csv").read_text())
    expected = evaluate_job(text_run / "run", str(tmp_path / "same.csv"), 0, Reading())
    assert found["metrics"] == expected["metrics"]
    assert found["examples"] == 24
    with pytest.raises(ValueError, match='no column "text"'):
        evaluate_job(text_run / "run", str(tmp_path / "other.csv"), 0, Reading())


def test_unreadable_images_are_left_out_and_said(image_run, tmp_path):
    data = shutil.copytree(image_run / "data", tmp_path / "data")
    (data / "test" / "red" / "0.png").write_bytes(b"bad")
    with pytest.raises(ValueError, match=r"0\.png cannot be read"):
        evaluate_job(image_run / "run", str(data), 0, Reading())
    seen = []
    found = evaluate_job(image_run / "run", str(data), 0, Reading(skip_bad=True), seen.append)
    assert found["examples"] == 8
    assert any("1 unreadable image left out" in event.text for event in seen if isinstance(event, Note))


def test_networks_made_in_python_are_evaluated_there(tmp_path):
    quick(steps=2, out=tmp_path / "run")
    with pytest.raises(ValueError, match="made in Python"):
        evaluate_job(tmp_path / "run", str(tmp_path), 0, Reading())


def test_the_training_data_are_recognised(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (tmp_path / "link").symlink_to(data)
    about = {"data": str(data)}
    assert same_data(about, str(data))
    assert same_data(about, str(tmp_path / "link"))
    assert not same_data(about, str(tmp_path))
    assert not same_data({"data": "cifar10"}, "cifar10")  # which has a test part of its own
    (data / "test.csv").touch()
    assert not same_data(about, str(data))
    (data / "test.csv").unlink()
    (data / "test").mkdir()
    assert not same_data(about, str(data))


def test_what_was_held_out_is_found_again(text_run):
    seen = []
    found = evaluate_job(text_run / "run", str(text_run / "rows.csv"), 0, Reading(), seen.append)
    stored = deelbo.run_folder.RunFolder(text_run / "run").read()["metrics"]
    assert found["metrics"] == pytest.approx(stored)
    assert (found["examples"], found["trained_on"]) == (6, False)
    assert any("held out for testing is used" in event.text for event in seen if isinstance(event, Note))


def test_the_assessment_is_that_of_the_run(image_run):
    found = evaluate_job(image_run / "run", str(image_run / "data"), 0, Reading())
    stored = deelbo.run_folder.RunFolder(image_run / "run").read()["metrics"]
    assert found["metrics"] == pytest.approx(stored)
