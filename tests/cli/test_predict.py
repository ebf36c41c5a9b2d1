"""`deelbo predict` as a user types it, in this process."""

import csv
import io
import json

import pytest

from deelbo.cli import main


def test_predict_images(image_run, capsys, monkeypatch):
    run, test = str(image_run / "run"), image_run / "data" / "test"
    assert main(["predict", run, str(test), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 9
    assert sum(rows[0]["probabilities"].values()) == pytest.approx(1)
    assert set(rows[0]["probabilities"]) == {"blue", "green", "red"}
    one = str(test / "red" / "0.png")
    assert main(["predict", run, one, "--top", "2", "--samples", "3"]) == 0
    name, *guesses = capsys.readouterr().out.strip().split("\t")
    assert name == one
    assert len(guesses) == 4
    assert main(["predict", run, one, "--csv", "--top", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "input,predicted,probability,predicted_2,probability_2"
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{one}\n\n"))
    assert main(["predict", run, "-"]) == 0
    assert capsys.readouterr().out.startswith(one)


def test_predict_texts(text_run, capsys, monkeypatch, tmp_path):
    run = str(text_run / "run")
    monkeypatch.setattr("sys.stdin", io.StringIO("ball goal team\nbank stock\n"))
    assert main(["predict", run, "-"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    out = tmp_path / "answers.csv"
    assert main(["predict", run, str(text_run / "rows.csv"), "--out", str(out)]) == 0
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 24
    assert set(rows[0]) == {"text", "label", "predicted", "probability"}
    assert main(["predict", run, str(text_run / "rows.csv"), "--out", str(out)]) == 2
    assert "exists; choose a new file" in capsys.readouterr().err


def test_columns_of_the_table_stay(text_run, capsys, tmp_path):
    table = tmp_path / "rows.csv"
    table.write_text("text,predicted\nball goal,mine\n")
    assert main(["predict", str(text_run / "run"), str(table), "--json"]) == 0
    row = json.loads(capsys.readouterr().out)[0]
    assert row["predicted"] == "mine"
    assert row["deelbo_predicted"] in ("sport", "money")
    assert main(["predict", str(text_run / "run"), str(table), "--json", "--csv"]) == 2


def test_predictions_without_the_unreadable(image_run, capsys, tmp_path):
    (tmp_path / "bad.png").write_bytes(b"bad")
    good = str(image_run / "data" / "test" / "red" / "0.png")
    assert main(["predict", str(image_run / "run"), str(tmp_path / "bad.png"), good, "--skip-bad"]) == 0
    printed = capsys.readouterr()
    assert [line.split("\t")[0] for line in printed.out.splitlines()] == [good]
    assert "bad.png cannot be read" in printed.err
