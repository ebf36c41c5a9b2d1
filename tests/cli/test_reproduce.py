"""`deelbo reproduce` as a user types it."""

import pytest

from deelbo.cli import main
from deelbo.reproduce import CONTENTS
from shared.reproductions import tiny_setup


def test_the_list(capsys, tmp_path):
    assert main(["reproduce", "--list", "--out", str(tmp_path)]) == 0
    listed = capsys.readouterr().out
    assert all(place.name in listed for place in CONTENTS)


def test_the_plan_of_table_2(capsys):
    assert main(["reproduce", "tab-2", "--scale", "paper", "--plan"]) == 0
    assert "| ResNet-50 | PTYL | MAP + GS | CIFAR-10 50000 | 1 | 240 + 1 | 241 | 148.6 |" in capsys.readouterr().out
    assert main(["reproduce", "fig-1a", "--steps", "7", "--seeds", "5", "--plan"]) == 0
    said = capsys.readouterr().out
    assert "steps 7" in said
    assert "seeds 5" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fig-9"], "all or one of fig-1a"),
        ([], "the name of a table or figure is missing"),
        (["tab-b7"], "twice: tab-image-nll"),
        (["fig-2", "--seed", "-1"], "--seed -1"),
        (["fig-2", "--out", __file__], "not a folder"),
        (["fig-2", "--scale", "phone"], "one of laptop, paper"),
        (["fig-1c"], "no data: --data FOLDER"),
        (["fig-1a"], "CIFAR-10 is missing"),
        (["fig-3", "--data", "nowhere"], "no such folder"),
        (["fig-1a", "--seeds", "x"], "seeds"),
        (["fig-2", "--precision", "fp8"], "it is no, fp16 or bf16"),
        (["fig-2", "--precision", "sound=bf16"], "the kinds of inputs are image and text"),
    ],
)
def test_what_cannot_be_made_is_said_in_a_line(words, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_a_table_from_the_command(tmp_path, capsys):
    tiny_setup(tmp_path)
    command = ["reproduce", "tab-1", "--out", str(tmp_path / "out"), "--image-model", "shared.pictures:small"]
    assert main(command) == 0
    captured = capsys.readouterr()
    assert captured.out.split() == [str(tmp_path / "out" / f"tab-1.{end}") for end in ("md", "json")]
    assert "tab-1: the priors p(w)" in captured.err
    assert main([*command, "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_entries_without_data_are_named_in_the_end(tmp_path, capsys):
    command = ["reproduce", "tab-1", "fig-1a", "fig-b6", "model-choice", "--out", str(tmp_path / "out")]
    assert main([*command, "--image-model", "shared.pictures:small"]) == 2
    captured = capsys.readouterr()
    assert "tab-1.md" in captured.out
    assert "no data for fig-1a, fig-b6, model-choice" in captured.err
    assert "4 entries: " in captured.err
