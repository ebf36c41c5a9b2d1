"""The report again: other test data, and inputs of another kind."""

import shutil

import pytest

from deelbo.jobs.evaluate import Reading
from deelbo.jobs.report import report_job
from shared.pictures import picture


@pytest.fixture
def run(image_run, tmp_path):
    return shutil.copytree(image_run / "run", tmp_path / "run")


def test_other_inputs(run, tmp_path):
    (tmp_path / "other").mkdir()
    for i in range(4):
        picture("red", i).rotate(90).save(tmp_path / "other" / f"{i}.png")
    page = report_job(run, None, str(tmp_path / "other"), Reading()).read_text()
    assert "On other inputs" in page
    assert "4 inputs from other, beside the test set" in page
    assert "AUROC" in page
    assert "On other inputs" not in report_job(run, None, None, Reading()).read_text()


def test_what_cannot_be_shown(run, text_run, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="no image"):
        report_job(run, None, str(tmp_path / "empty"), Reading())
    with pytest.raises(FileNotFoundError):
        report_job(run, None, str(tmp_path / "none"), Reading())
    with pytest.raises(ValueError, match="data=DATA"):
        report_job(run, None, None, Reading(), temperature=2.0)
