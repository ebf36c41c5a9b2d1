"""`deelbo calibrate` as a user types it; what it does is tested with its job."""

import shutil

from deelbo.cli import main


def test_it_says_what_changed_and_writes_the_report_again(image_run, tmp_path, capsys):
    run = shutil.copytree(image_run / "run", tmp_path / "run")
    (run / "report.html").unlink()
    assert main(["calibrate", str(run)]) == 0
    out = capsys.readouterr().out
    assert "(from training set)" in out
    assert "test accuracy " in out
    assert (run / "report.html").exists()
    assert main(["calibrate", str(run), "--quiet"]) == 0
    assert capsys.readouterr().out == ""


def test_no_run(tmp_path, capsys):
    assert main(["calibrate", str(tmp_path)]) == 2
    assert "is no run" in capsys.readouterr().err
