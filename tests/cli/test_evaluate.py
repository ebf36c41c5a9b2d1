"""`deelbo evaluate` as a user types it, in this process."""

import json

import pytest
import torch

import deelbo
from deelbo.cli import main


def test_what_was_held_out_is_used(text_run, capsys):
    assert main(["evaluate", str(text_run / "run"), str(text_run / "rows.csv")]) == 0
    assert "held out for testing is used" in capsys.readouterr().err


def test_evaluate_and_python_agree(image_run, text_run, tmp_path, capsys):
    rows = tmp_path / "rows.csv"
    rows.write_text((text_run / "rows.csv").read_text())
    for folder, data in ((image_run, image_run / "data"), (text_run, rows)):
        assert main(["evaluate", str(folder / "run"), str(data), "--json", "--samples", "2"]) == 0
        printed = json.loads(capsys.readouterr().out)
        result = deelbo.load(folder / "run")
        examples = deelbo.data.load_labelled(str(data), result.reader.kind, result.reader.targets)
        assert result.evaluate(result.reader.dataset(examples), samples=2) == pytest.approx(printed, rel=1e-4)
        p = result.predict(examples.inputs[:2])
        torch.testing.assert_close(p, result.predict(list(examples.inputs[:2])))
    assert main(["evaluate", str(image_run / "run"), str(image_run / "data")]) == 0
    stored = json.loads((image_run / "run" / "run.json").read_text())["metrics"]
    assert f"accuracy                          {stored['accuracy']:.4f}" in capsys.readouterr().out
