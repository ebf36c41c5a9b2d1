"""The one call: what it learns, and what it refuses."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import deelbo
from shared.digits import FAST, digits, network, quick


def test_batch_norm_is_refreshed_at_the_mean():
    result = quick()
    x = digits()[0][:][0]
    mean = result.model[0](x).detach()
    torch.testing.assert_close(result.model[1].running_mean, mean.mean(0))
    assert not torch.allclose(quick(batch_norm="running").model[1].running_mean, mean.mean(0))


def test_batch_norm_with_one_example_too_many():
    """97 = 3 * 32 + 1: a last batch of one has no variance, and one of few would count like a full one."""
    result = deelbo.finetune(network(), digits(97)[0], "4", **FAST)
    x = digits(97)[0][:][0]
    torch.testing.assert_close(result.model[1].running_mean, result.model[0](x).detach().mean(0), rtol=0.02, atol=0.02)


def test_history_has_both_terms_and_what_was_learned():
    result = quick()
    names = {"learning_rate", "step", "epoch", "rate", "nll", "accuracy", "variance_backbone", "variance_head", "scale"}
    assert names | {"data_loss", "kl", "kappa"} == set(result.history[0])
    rows = [row for row in result.history if row["learning_rate"] == result.learning_rate]
    assert [row["step"] for row in rows] == list(range(3, 61, 3))
    assert rows[-1]["nll"] < rows[0]["nll"]


def test_callers_randomness_is_left_alone():
    train_set, net = digits()[0], network()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    deelbo.finetune(net, train_set, "4", **{**FAST, "steps": 3})
    assert torch.equal(torch.rand(3), expected)


def test_augmentation_by_numpy_is_seeded():
    examples = digits()[0]

    class Noisy:
        def __len__(self):
            return 40

        def __getitem__(self, i):
            x, y = examples[i]
            return x + torch.tensor(np.random.normal(size=64), dtype=x.dtype), y  # noqa: NPY002 - what people write

    np.random.seed(1)  # noqa: NPY002
    first = deelbo.finetune(network(), Noisy(), "4", **{**FAST, "steps": 3})
    np.random.seed(2)  # noqa: NPY002
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    assert deelbo.finetune(network(), Noisy(), "4", **{**FAST, "steps": 3}).history == first.history
    assert (np.random.get_state()[1] == state).all()  # noqa: NPY002


def test_networks_that_need_a_batch_or_raise_stay_as_they_were():
    class Squeezes(nn.Module):
        def __init__(self, error=None):
            super().__init__()
            self.body, self.norm = nn.Linear(64, 8), nn.BatchNorm1d(8, track_running_stats=False)
            self.fc, self.error = nn.Linear(8, 10), error

        def forward(self, x):
            if self.error:
                raise self.error
            return self.fc(self.norm(self.body(x)).squeeze())

    deelbo.finetune(Squeezes(), digits()[0], **{**FAST, "steps": 2})
    broken = Squeezes(RuntimeError("broken"))
    with pytest.raises(RuntimeError, match="broken"):
        deelbo.finetune(broken, digits()[0], **FAST)
    assert broken.training


@pytest.mark.parametrize(
    ("examples", "options", "message"),
    [
        ([], {}, "is empty"),
        ([(torch.ones(64), 0.5)] * 4, {}, "targets of shape"),
        ([(torch.ones(64), torch.tensor([0, 1]))] * 4, {}, "a logit for each label"),
        ([(torch.ones(64), 10)] * 4, {}, "a label is 10, but the network gives 10 logits"),
        ([(torch.ones(64), -1)] * 4, {}, "a label is -1"),
        ([(torch.ones(64), 1)] * 4, {"plain_train_set": [(torch.ones(64), 1)] * 3}, "3 examples, and train_set 4"),
    ],
)
def test_data_that_do_not_fit_the_network(examples, options, message):
    with pytest.raises(ValueError, match=message):
        deelbo.finetune(network(False), examples, "4", **options, **FAST)


def test_dictionaries_for_hugging_face_networks():
    import transformers

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.BertConfig(vocab_size=40, num_labels=2, max_position_embeddings=8, **sizes)
    tokens = torch.randint(40, (24, 6), generator=torch.Generator().manual_seed(0))
    examples = [{"input_ids": t, "labels": int(t[0] > 20)} for t in tokens]
    result = deelbo.finetune(transformers.BertForSequenceClassification(config), examples, **{**FAST, "steps": 4})
    assert result.predict({"input_ids": tokens}).shape == (24, 2)
    assert math.isfinite(result.evaluate(examples)["nll"])
