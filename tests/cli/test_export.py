"""`deelbo export` as a user types it, in this process."""

import pytest
import safetensors.torch
import transformers

import deelbo
from deelbo.cli import main
from shared.pictures import Small


def test_hugging_face_reads_what_was_exported(text_run, tmp_path):
    assert main(["export", str(text_run / "run"), str(tmp_path / "bert")]) == 0
    exported = transformers.pipeline("text-classification", str(tmp_path / "bert"))
    label = exported("ball goal")[0]
    expected = deelbo.load(text_run / "run").predict(["ball goal"])[0]
    assert label["score"] == pytest.approx(expected.max().item(), abs=1e-5)
    assert label["label"] == ["money", "sport"][expected.argmax()]


def test_other_networks_are_a_state_dict(image_run, tmp_path, capsys):
    assert main(["export", str(image_run / "run"), str(tmp_path / "small")]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "small")
    Small(3).load_state_dict(safetensors.torch.load_file(tmp_path / "small" / "model.safetensors"))
    assert main(["export", str(image_run / "run"), str(tmp_path / "small")]) == 2
    assert "is not empty" in capsys.readouterr().err
