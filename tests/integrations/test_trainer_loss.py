"""N is what the Trainer's loss is a mean over, for every kind of network and label."""

import pytest
import torch
import transformers

from deelbo.integrations import huggingface
from deelbo.integrations.trainer_loss import count_data, loss_uses_item_count, predicts_tokens, shifts_labels
from shared.trainers import Texts, arguments, bert, classifier, language_model, sft, token_loss

pytestmark = pytest.mark.slow


def gpt2():
    torch.manual_seed(0)
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 16}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=30, **sizes)).eval()


def masked():
    torch.manual_seed(0)
    return transformers.BertForMaskedLM(bert().config).eval()


def whole(trainer):
    """Return the mean loss of all texts in one batch, as the Trainer computes it in a training step."""
    batch = trainer.data_collator([trainer.train_dataset[i] for i in range(12)])
    items = trainer._get_num_items_in_batch([batch], torch.device("cpu"))
    with torch.no_grad():
        return float(trainer.compute_loss(trainer.model.eval(), dict(batch), num_items_in_batch=items)), batch


@pytest.mark.parametrize("make", [language_model, gpt2])
@pytest.mark.parametrize("own", [False, True])
def test_n_times_the_mean_loss_is_minus_the_log_likelihood(tmp_path, make, own):
    texts = Texts(tokens=True)
    trainer = sft(tmp_path, make()) if own else transformers.Trainer(make(), arguments(tmp_path), train_dataset=texts)
    loss, batch = whole(trainer)
    with torch.no_grad():
        assert count_data(trainer) * loss == pytest.approx(float(token_loss(make().eval(), batch)), rel=1e-5)


def test_tokens_that_are_predicted(tmp_path):
    trainer = transformers.Trainer(language_model(), arguments(tmp_path), train_dataset=Texts(tokens=True))
    assert shifts_labels(trainer)
    assert count_data(trainer) == 30  # of five, without the first and one or two that are ignored
    trainer.model_accepts_loss_kwargs = False  # then the network divides, by what its name says
    assert count_data(trainer) == 30
    assert count_data(transformers.Trainer(masked(), arguments(tmp_path), train_dataset=Texts(tokens=True))) == 30 + 12


def test_examples_of_a_classifier(tmp_path):
    assert count_data(classifier(tmp_path)) == 12


def test_columns_that_the_network_does_not_take(tmp_path):
    datasets = pytest.importorskip("datasets")
    rows = [{**{name: value.tolist() for name, value in Texts()[i].items()}, "text": "words"} for i in range(12)]
    for data in (datasets.Dataset.from_list(rows), rows):
        trainer = transformers.Trainer(bert(), arguments(tmp_path, gradient_accumulation_steps=3), train_dataset=data)
        handle = huggingface.attach(trainer)
        assert handle.objective.num_data == 12
        trainer.train()


def test_texts_without_labels(tmp_path):
    texts = Texts(tokens=True)
    texts.labels[:] = -100
    trainer = transformers.Trainer(language_model(), arguments(tmp_path), train_dataset=texts)
    with pytest.raises(ValueError, match="no token of the training set has a label"):
        huggingface.attach(trainer)


def test_the_output_layer_of_a_language_model_is_no_new_classifier(tmp_path):
    assert [predicts_tokens(network) for network in (language_model(), gpt2(), masked(), bert())] == [True] * 3 + [
        False
    ]
    trainer = transformers.Trainer(masked(), arguments(tmp_path), train_dataset=Texts(tokens=True))
    assert list(huggingface.attach(trainer).objective.prior.variances) == ["backbone"]


def test_who_divides_by_the_number_of_items(tmp_path):
    """Classifiers accept the number and ignore it, so the Trainer must divide by the number of micro-batches."""
    trainer = classifier(tmp_path, gradient_accumulation_steps=3)
    assert trainer.model_accepts_loss_kwargs
    assert not loss_uses_item_count(trainer)
    huggingface.attach(trainer)
    trainer.train()
    assert not trainer.model_accepts_loss_kwargs
    assert loss_uses_item_count(transformers.Trainer(language_model(), arguments(tmp_path), train_dataset=Texts(True)))


def test_asking_leaves_no_trace(tmp_path):
    trainer = sft(tmp_path)
    generator = torch.get_rng_state()
    assert loss_uses_item_count(trainer)
    assert torch.equal(torch.get_rng_state(), generator)
    assert not any(trainer._metrics["eval"].values())
    assert trainer.model.training
