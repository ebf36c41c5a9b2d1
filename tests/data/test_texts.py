import pytest

from deelbo.data import Targets, load_data
from deelbo.data.texts import longest
from deelbo.models import load_model
from shared.pictures import text_table, tiny_bert


def test_tokens_are_padded_to_the_longest_of_a_batch(tmp_path):
    data = load_data(text_table(tmp_path / "rows.csv"))
    _, reader = load_model(f"hf:{tiny_bert(tmp_path / 'bert')}", "text", data.targets)
    texts, plain = reader.training_sets(data.train)
    assert texts is plain
    batch = texts.collate([texts[0], texts[2]])
    words = [len(data.train.inputs[i].split()) + 2 for i in (0, 2)]
    assert batch["input_ids"].shape == (2, max(words))
    assert batch["attention_mask"].sum(1).tolist() == words
    assert batch["labels"].tolist() == [data.train.labels[0], data.train.labels[2]]
    alone = reader.tokenizer(data.train.inputs[0])["input_ids"]
    assert batch["input_ids"][0].tolist() == alone + [0] * (max(words) - words[0])


def test_longest(tmp_path):
    network, reader = load_model(
        f"hf:{tiny_bert(tmp_path)}", "text", Targets("classification", ["a", "b"]), max_length=4
    )
    assert reader.max_length == 4
    assert len(reader.unlabelled(["ball " * 10])[0]["input_ids"]) == 4
    assert longest(reader.tokenizer, network, None) == 16
    with pytest.raises(ValueError, match="takes 1 to 16 tokens"):
        longest(reader.tokenizer, network, 100)
