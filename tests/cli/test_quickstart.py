"""The README's first command, with fewer steps and images."""

import json

import pytest

from deelbo.cli import main, quickstart

pytestmark = pytest.mark.slow


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(quickstart, "TEST", 20)
    monkeypatch.setattr(quickstart, "SETTINGS", {"steps": 2, "batch_size": 8, "learning_rates": (0.1,), "samples": 1})


def test_both_methods_and_a_report(tmp_path, small, capsys):
    out = tmp_path / "quick"
    assert main(["quickstart", "--out", str(out), "--quiet"]) == 0
    printed = capsys.readouterr().out
    assert "elbo" in printed
    assert "de-elbo" in printed
    for method in ("elbo", "de-elbo"):
        run = json.loads((out / method / "run.json").read_text())
        assert run["num_data"] == 100
        assert (out / method / "report.html").exists()
    (out / ".elbo.lock").touch()  # of a killed process
    before = (out / "elbo" / "model.safetensors").stat().st_mtime_ns
    assert main(["quickstart", "--out", str(out), "--quiet"]) == 0  # again: nothing is trained twice
    assert (out / "elbo" / "model.safetensors").stat().st_mtime_ns == before


def test_folders_of_somebody_else_are_left_alone(tmp_path, small, capsys):
    (tmp_path / "thesis.tex").touch()
    assert main(["quickstart", "--out", str(tmp_path)]) == 2
    assert "something else (thesis.tex)" in capsys.readouterr().err
    cat = tmp_path / "quick" / "digits" / "train" / "cats" / "1.png"
    cat.parent.mkdir(parents=True)
    cat.touch()
    assert main(["quickstart", "--out", str(tmp_path / "quick")]) == 2
    assert "other images" in capsys.readouterr().err
