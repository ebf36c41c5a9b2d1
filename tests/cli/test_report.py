"""`deelbo report` as a user types it, in this process."""

import json
import shutil

from deelbo.cli import main


def test_the_page_is_made_again_and_for_other_data(image_run, tmp_path):
    run = shutil.copytree(image_run / "run", tmp_path / "run")
    before = (run / "report.html").read_text()
    (run / "report.html").unlink()
    assert main(["report", str(run)]) == 0
    assert (run / "report.html").read_text() == before
    assert main(["report", str(run), "--data", str(image_run / "data" / "train")]) == 0
    assert "On 18 test examples" in (run / "report.html").read_text()


def test_a_test_on_training_rows_is_said(text_run, tmp_path, capsys):
    run = shutil.copytree(text_run / "run", tmp_path / "run")
    stored = json.loads((run / "run.json").read_text())
    stored["about"]["test_fraction"] = None  # as if nothing had been held out
    (run / "run.json").write_text(json.dumps(stored))
    assert main(["report", str(run), "--data", str(text_run / "rows.csv")]) == 0
    assert "trained on are among these" in capsys.readouterr().err
    page = (run / "report.html").read_text()
    assert "these results are too good" in page
    assert "On 24 examples" in page


def test_an_unfinished_run_has_no_report(image_run, tmp_path, capsys):
    run = shutil.copytree(image_run / "run", tmp_path / "run")
    stored = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**stored, "status": "running"}))
    assert main(["report", str(run)]) == 2
    assert "is an unfinished run" in capsys.readouterr().err
