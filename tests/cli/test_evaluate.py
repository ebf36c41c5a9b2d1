"""`deelbo evaluate` as a user types it, in this process."""

import json

import pytest
import torch

import deelbo
from deelbo.cli import main


def test_evaluating_on_training_rows_is_said(text_run, capsys):
    assert main(["evaluate", str(text_run / "run"), str(text_run / "rows.csv")]) == 0
    assert "trained on are among these" in capsys.readouterr().err


def test_evaluate_and_python_agree(image_run, text_run, capsys):
    for folder, data in ((image_run, image_run / "data"), (text_run, text_run / "rows.csv")):
        assert main(["evaluate", str(folder / "run"), str(data), "--json", "--samples", "2"]) == 0
        printed = json.loads(capsys.readouterr().out)
        result = deelbo.load(folder / "run")
        examples = deelbo.data.load_labelled(str(data), result.reader.kind, result.reader.targets)
        assert result.evaluate(result.reader.dataset(examples), samples=2) == pytest.approx(printed)
        p = result.predict(examples.inputs[:2])
        torch.testing.assert_close(p, result.predict(list(examples.inputs[:2])))
    assert main(["evaluate", str(image_run / "run"), str(image_run / "data")]) == 0
    stored = json.loads((image_run / "run" / "run.json").read_text())["metrics"]
    assert f"accuracy               {stored['accuracy']:.4f}" in capsys.readouterr().out
