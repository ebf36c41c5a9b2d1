"""Predictions of a finished run, without the command line."""

import pytest
import torch

import deelbo
from deelbo.jobs.predict import predict_job
from shared.digits import quick


def test_lines_folders_and_files_in_order(image_run):
    test = image_run / "data" / "test"
    one = str(test / "red" / "1.png")
    rows = predict_job(image_run / "run", [one, "-", str(test / "blue")], top=3, lines=[f"{one}\n", "\n"])
    names = [row.input_columns["input"] for row in rows]
    assert names == [one, one, *(str(test / "blue" / f"{i}.png") for i in range(3))]
    expected = deelbo.load(image_run / "run").predict([one])[0]
    for row in rows[:2]:
        found = torch.tensor(list(row.details["probabilities"].values()), dtype=torch.float64)
        torch.testing.assert_close(found, expected.double(), rtol=1e-5, atol=1e-6)
        assert row.columns["predicted"] == ["blue", "green", "red"][expected.argmax()]
        assert row.columns["probability"] == pytest.approx(expected.max().item(), abs=1e-6)
        assert row.columns["probability_3"] == pytest.approx(expected.min().item(), abs=1e-6)


def test_rows_keep_their_columns(text_run, tmp_path):
    table = tmp_path / "rows.tsv"
    table.write_text("body\tprobability\nball goal\t7\n")
    (row,) = predict_job(text_run / "run", [str(table)], text_column="body")
    assert row.input_columns == {"body": "ball goal", "probability": "7"}
    assert set(row.columns) == {"deelbo_predicted", "deelbo_probability"}
    assert set(row.details) == {"deelbo_probabilities"}


def test_refusals(text_run, tmp_path):
    run = text_run / "run"
    (tmp_path / "empty.csv").write_text("text\n")
    (tmp_path / "other.jsonl").write_text('{"text": "ball"}\n{"text": null}\n')
    (tmp_path / "notes.txt").write_text("ball goal")
    for inputs, options, message in (
        (["x"], {"top": 0}, "top must be at least 1"),
        (["x"], {"samples": -1}, "samples at least 0"),
        ([str(tmp_path / "none.csv")], {}, "no such file; texts come from a table, or from standard input by -"),
        ([str(tmp_path / "notes.txt")], {}, "a table of texts is a CSV, TSV, JSONL or Parquet file"),
        ([str(tmp_path / "other.jsonl")], {}, "row 2: no text"),
        (["-"], {"lines": ["\n", "  "]}, "no text in -"),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            predict_job(run, inputs, **options)


def test_networks_made_in_python_predict_there(tmp_path):
    quick(steps=2, out=tmp_path / "run")
    with pytest.raises(ValueError, match="made in Python"):
        predict_job(tmp_path / "run", ["x.png"])
