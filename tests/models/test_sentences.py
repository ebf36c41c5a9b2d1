"""Sentence encoders, from local folders."""

import pytest
import safetensors.torch
import torch

from deelbo.models import load_model, restore_model
from deelbo.models.sentences import SentenceClassifier, pool, stated_pooling
from shared.models import CLASSES
from shared.pictures import tiny_bert, tiny_encoder


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, "mean"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "first"),
        ({"pooling_mode": "lasttoken"}, "last"),
        ({"pooling_mode": "max"}, "max"),
    ],
)
def test_an_encoder_is_read_as_it_was_trained(tmp_path, stated, expected):
    network, reader = load_model(tiny_encoder(tmp_path / "e", **stated), "text", CLASSES)
    assert isinstance(network, SentenceClassifier)
    assert network.pooling == expected
    batch = reader.tokenizer(["red ball", "blue"], padding=True, return_tensors="pt")
    network.eval()
    tokens = network.encoder(**batch).last_hidden_state
    expected_output = network.classifier(pool(tokens, batch["attention_mask"], expected))
    torch.testing.assert_close(network(**batch), expected_output)


@pytest.mark.parametrize("stated", [{"pooling_mode": ["mean", "max"]}, {"pooling_mode": "weightedmean"}, {}])
def test_other_poolings_leave_the_architectures_own_classifier(tmp_path, stated):
    network, _ = load_model(tiny_encoder(tmp_path / "e", **stated), "text", CLASSES)
    assert not isinstance(network, SentenceClassifier)


def test_a_user_can_overrule(tmp_path):
    spec = tiny_encoder(tmp_path / "e", pooling_mode="mean")
    assert not isinstance(load_model(spec, "text", CLASSES, pooling="own")[0], SentenceClassifier)
    assert load_model(spec, "text", CLASSES, pooling="max")[0].pooling == "max"
    assert load_model(f"hf:{tiny_bert(tmp_path / 'plain')}", "text", CLASSES, pooling="mean")[0].pooling == "mean"
    with pytest.raises(ValueError, match="pooling='median', but it is one of mean, first, last, max, own"):
        load_model(spec, "text", CLASSES, pooling="median")
    with pytest.raises(ValueError, match="pooling='mean' is for texts"):
        load_model("timm:resnet18", "image", CLASSES, pooling="mean")


def test_a_run_knows_its_pooling_again(tmp_path):
    network, reader = load_model(tiny_encoder(tmp_path / "e", pooling_mode="max"), "text", CLASSES)
    reader.write_files(tmp_path / "files")
    again, again_reader = restore_model(reader.as_dict(), tmp_path / "files")
    again.load_state_dict(network.state_dict())
    batch = again_reader.tokenizer(["red ball"], return_tensors="pt")
    torch.testing.assert_close(again.eval()(**batch), network.eval()(**batch))


def test_weights_of_the_bare_encoder_and_of_a_classifier(tmp_path):
    spec = tiny_encoder(tmp_path / "e", pooling_mode="mean")
    network, _ = load_model(spec, "text", CLASSES)
    own = load_model(spec, "text", CLASSES, pooling="own")[0]
    bare = {name.removeprefix("encoder."): v for name, v in network.state_dict().items() if "encoder." in name[:8]}
    for name, state in {"bare": bare, "bert": own.state_dict(), "ours": network.state_dict()}.items():
        safetensors.torch.save_file({k: v.contiguous() for k, v in state.items()}, tmp_path / f"{name}.safetensors")
        again, _ = load_model(spec, "text", CLASSES, weights=tmp_path / f"{name}.safetensors")
        torch.testing.assert_close(again.encoder.state_dict(), network.encoder.state_dict())


def test_the_pooling_of_an_exported_network_can_be_overruled(tmp_path):
    network, reader = load_model(tiny_encoder(tmp_path / "e", pooling_mode="mean"), "text", CLASSES)
    network.save_pretrained(tmp_path / "out")
    reader.tokenizer.save_pretrained(tmp_path / "out")
    own, own_reader = load_model(f"hf:{tmp_path / 'out'}", "text", CLASSES, pooling="own")
    own_reader.write_files(tmp_path / "files")
    assert type(restore_model(own_reader.as_dict(), tmp_path / "files")[0]) is type(own)


def test_an_exported_network_is_a_model_of_sentence_transformers(tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    spec = tiny_encoder(tmp_path / "e", pooling_mode="mean")
    network, reader = load_model(spec, "text", CLASSES, max_length=4)
    network.save_pretrained(tmp_path / "out")
    reader.tokenizer.save_pretrained(tmp_path / "out")
    texts = ["goal team match player ball bank", "bank"]
    found = sentence_transformers.SentenceTransformer(str(tmp_path / "out"), device="cpu").encode(texts)
    batch = reader.tokenizer(texts, padding=True, truncation=True, max_length=4, return_tensors="pt")
    torch.testing.assert_close(torch.as_tensor(found), network.eval()(**batch).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("left", [False, True])
def test_paddings_do_not_count(left):
    tokens = torch.randn(2, 4, 3)
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1]])
    if left:
        tokens, mask = tokens.flip(1), mask.flip(1)
    alone = tokens[:1][:, mask[0].bool()]
    for name in ("mean", "first", "last", "max"):
        whole = torch.ones(1, 2, dtype=torch.long)
        torch.testing.assert_close(pool(tokens, mask, name)[:1], pool(alone, whole, name))


def test_a_text_without_tokens_is_a_number_nevertheless():
    for name in ("mean", "first", "last", "max"):
        assert pool(torch.randn(1, 3, 2), torch.zeros(1, 3, dtype=torch.long), name).isfinite().all()


def test_the_encoder_of_an_encoder_and_decoder(tmp_path):
    import transformers

    spec = tiny_encoder(tmp_path / "e", pooling_mode="mean")
    config = transformers.T5Config(vocab_size=20, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    transformers.T5Model(config).save_pretrained(tmp_path / "e")
    network, _ = load_model(spec, "text", CLASSES)
    ids = torch.tensor([[1, 2, 3]])
    assert network(input_ids=ids, attention_mask=torch.ones_like(ids)).shape == (1, 3)


def test_a_model_that_says_nothing(tmp_path):
    assert stated_pooling(str(tiny_bert(tmp_path / "e")), object()) is None
