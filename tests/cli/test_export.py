"""`deelbo export` as a user types it, in this process."""

import shutil

import pytest
import safetensors.torch
import timm
import torch
import transformers

import deelbo
from deelbo.cli import main
from deelbo.run_folder import RunFolder
from shared.pictures import Small, image_folder


def with_temperature(run, folder):
    """Return a copy of a run with a temperature that shows in the small logits of these networks."""
    copied = shutil.copytree(run, folder)
    RunFolder(copied).write_calibration({"temperature": 0.05, "source": "training set"}, None)
    return copied


def test_transformers_gives_calibrated_probabilities(text_run, tmp_path):
    run = with_temperature(text_run / "run", tmp_path / "run")
    texts = ["ball goal", "bank money market"]
    expected = {None: deelbo.load(run).predict(texts), 1.0: deelbo.load(run).predict(texts, temperature=1)}
    assert not torch.allclose(expected[None], expected[1.0], atol=1e-3)
    for temperature, option in ((None, []), (1.0, ["--temperature", "1"])):
        folder = tmp_path / f"bert{temperature}"
        assert main(["export", str(run), str(folder), *option]) == 0
        exported = transformers.pipeline("text-classification", str(folder), top_k=None)
        for text, row in zip(texts, expected[temperature], strict=True):
            found = {part["label"]: part["score"] for part in exported([text])[0]}
            assert [found["money"], found["sport"]] == pytest.approx(row.tolist(), abs=1e-5)


def test_pytorch_and_timm_give_calibrated_probabilities(image_run, tmp_path):
    data = image_folder(tmp_path / "data", train=3, test=1)
    safetensors.torch.save_file(timm.create_model("resnet10t").state_dict(), tmp_path / "weights.safetensors")
    command = ["finetune", str(data), "--model", "timm:resnet10t", "--image-size", "32"]
    command += ["--weights", str(tmp_path / "weights.safetensors")]
    command += ["--steps", "2", "--learning-rates", "0.1", "--device", "cpu", "--out", str(tmp_path / "timm-run")]
    assert main(command) == 0
    image = torch.rand(2, 3, 32, 32)
    for run, network in (
        (image_run / "run", Small(3)),
        (tmp_path / "timm-run", timm.create_model("resnet10t", num_classes=3)),
    ):
        copied = with_temperature(run, tmp_path / f"{run.name}-calibrated")
        assert main(["export", str(copied), str(tmp_path / f"{run.name}-exported")]) == 0
        weights = safetensors.torch.load_file(tmp_path / f"{run.name}-exported" / "model.safetensors")
        network.load_state_dict(weights)
        with torch.no_grad():
            found = network.eval()(image).double().softmax(1)
        torch.testing.assert_close(found, deelbo.load(copied).predict(image), atol=1e-6, rtol=1e-4)
        assert not torch.allclose(found, deelbo.load(copied).predict(image, temperature=1), atol=1e-4)


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
