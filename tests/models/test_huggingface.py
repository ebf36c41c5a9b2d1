"""Networks of Hugging Face's transformers, from local folders."""

import pytest
import safetensors.torch
import torch

from deelbo.data import Targets
from deelbo.models import load_model, restore_model
from shared.models import CLASSES, NAMES, logits
from shared.pictures import tiny_bert


def test_a_transformer_keeps_the_names_of_the_labels(tmp_path):
    spec = f"hf:{tiny_bert(tmp_path / 'bert')}"
    network, reader = load_model(spec, "text", CLASSES)
    assert network.config.id2label == dict(enumerate(NAMES))
    reader.write_files(tmp_path / "files")
    for file in (tmp_path / "bert").iterdir():
        file.unlink()
    again, again_reader = restore_model(reader.as_dict(), tmp_path / "files")
    assert again.config.id2label == dict(enumerate(NAMES))
    again.load_state_dict(network.state_dict())
    assert again_reader.tokenizer("ball")["input_ids"] == reader.tokenizer("ball")["input_ids"]
    with pytest.raises(ValueError, match="is no model of Hugging Face"):
        load_model(spec, "text", CLASSES)


def test_weights_of_hugging_face_that_do_not_fit(tmp_path):
    folder = tiny_bert(tmp_path / "bert")
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    renamed = {f"zzz.{name}": value for name, value in weights.items()}
    safetensors.torch.save_file(renamed, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match=r"do not fit: missing or of another shape bert\.embeddings"):
        load_model(f"hf:{folder}", "text", CLASSES)
    smaller = {name: value[..., :8].contiguous() for name, value in weights.items()}
    safetensors.torch.save_file(smaller, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match="do not fit"):
        load_model(f"hf:{folder}", "text", CLASSES)


def test_a_classifier_of_as_many_classes_is_replaced_too(tmp_path):
    folder = tiny_bert(tmp_path / "bert")
    network, reader = load_model(f"hf:{folder}", "text", CLASSES)
    with torch.no_grad():
        network.classifier.bias.fill_(5.0)
    network.save_pretrained(tmp_path / "tuned")
    reader.tokenizer.save_pretrained(tmp_path / "tuned")
    again, _ = load_model(f"hf:{tmp_path / 'tuned'}", "text", Targets("classification", ["a", "b", "c"]))
    assert again.classifier.bias.abs().max() == 0
    torch.testing.assert_close(again.bert.state_dict(), network.bert.state_dict())


def test_a_vision_transformer_of_hugging_face(tmp_path):
    import transformers

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.ViTConfig(image_size=32, patch_size=8, num_labels=5, **sizes)
    transformers.ViTForImageClassification(config).save_pretrained(tmp_path)
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(tmp_path)
    network, reader = load_model(f"hf:{tmp_path}", "image", CLASSES)
    assert (reader.image.size, reader.image.mean, reader.image.interpolation) == (32, (0.5, 0.5, 0.5), "bilinear")
    assert logits(network).logits.shape == (2, 3)
    with pytest.raises(ValueError, match="is no network for texts"):
        load_model(f"hf:{tmp_path}", "text", CLASSES)


def test_a_folder_that_is_not_there():
    with pytest.raises(ValueError, match="no such folder"):
        load_model("hf:./no/such/folder", "text", CLASSES)
