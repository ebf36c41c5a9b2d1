"""Training by pairs: its loss by a slow formula, the classifier that is fitted at its end, and where it is default."""

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cosine_similarity

import deelbo
from deelbo.likelihoods import Categorical
from deelbo.likelihoods.categorical import IGNORED
from deelbo.training.batches import even_parts
from deelbo.training.last_layer import LastLayer
from deelbo.training.pairs import SHARPNESS, class_mean_logits, pair_loss
from deelbo.training.settings import PAIR_RATES
from shared.candidates import candidate
from shared.digits import digits, network, quick
from shared.sentences import finetuned_texts


def slow_pair_loss(features, labels):
    pairs = [(i, j) for i in range(len(labels)) for j in range(i)]
    cosines = {(i, j): cosine_similarity(features[i], features[j], dim=0) for i, j in pairs}
    same = [(1 - cosines[i, j]) ** 2 for i, j in pairs if labels[i] == labels[j]]
    different = [cosines[i, j] ** 2 for i, j in pairs if labels[i] != labels[j]]
    return sum(sum(part) / len(part) / 2 for part in (same, different) if part)


def some_features(number=9):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(number, 4, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize(
    "labels", [[0, 1, 2, 0, 1, 2, 0, 0, 1], [0] * 9, list(range(9))], ids=["mixed", "one class", "no two alike"]
)
def test_the_loss_is_that_of_every_pair(labels):
    features, labels = some_features().requires_grad_(), torch.tensor(labels)
    expected = slow_pair_loss(features, labels)
    torch.testing.assert_close(pair_loss(features, labels), expected)
    ours, theirs = (torch.autograd.grad(value, features)[0] for value in (pair_loss(features, labels), expected))
    torch.testing.assert_close(ours, theirs)


def test_examples_without_a_label_are_left_out():
    features, labels = some_features(), torch.tensor([0, 1, IGNORED, 0, 1, IGNORED, 0, 0, 1])
    known = labels != IGNORED
    torch.testing.assert_close(pair_loss(features, labels), pair_loss(features[known], labels[known]))
    single = some_features(1).requires_grad_()
    loss = pair_loss(single, torch.tensor([3]))
    loss.backward()
    assert (loss.item(), single.grad.abs().max().item()) == (0.0, 0.0)


@pytest.mark.parametrize("labels", [[0, 1, 2, 0, 1, 2, 0, 0, 1], [0, 1, IGNORED, 0, 3, IGNORED, 0, 0, 1]])
def test_an_example_is_told_by_the_class_means_of_the_others(labels):
    features, labels = some_features(), torch.tensor(labels)
    logits = class_mean_logits(features, labels, 5)
    unit = features / features.norm(dim=1, keepdim=True)
    for i in range(len(labels)):
        for c in range(5):
            others = [j for j in range(len(labels)) if labels[j] == c and j != i]
            expected = cosine_similarity(unit[i], unit[others].mean(0), dim=0) if others else torch.tensor(0.0)
            assert logits[i, c].item() == pytest.approx(SHARPNESS * expected.item(), abs=1e-6)


def with_pairs(**options):
    running = candidate(pairs=True, **options)
    running.last_layer = LastLayer(running.network[3])
    with torch.no_grad():
        running.network[3].weight.zero_()
    return running


def advance(running, until):
    for _ in running.advance(until):
        pass


def test_the_classifier_waits_for_the_features():
    running = with_pairs()
    advance(running, 40)
    layer = running.network[3]
    assert layer.weight.abs().max() == 0
    first, last = running.history[0], running.history[-1]
    assert last["data_loss"] < 0.6 * first["data_loss"]
    assert last["nll"] < first["nll"]  # by class means
    assert last["accuracy"] > 0.9
    features = [p.detach().clone() for p in running.network[:3].parameters()]
    assert running.objective(final=True) > -math.inf
    assert layer.weight.abs().max() > 0
    assert all(torch.equal(p, q) for p, q in zip(features, running.network[:3].parameters(), strict=True))
    assert not layer._forward_pre_hooks
    x, y = running.plain_set.tensors
    running.network.eval()
    assert (running.network(x).argmax(1) == y).double().mean() > 0.9


def test_the_classifier_is_fitted_at_the_mean_weights():
    running = with_pairs()
    advance(running, 40)
    running.batch_norm = "frozen"  # so that the statistics stay
    running.objective(final=True)
    x, y = running.plain_set.tensors
    running.network.eval()
    layer = nn.Linear(32, 10)
    with torch.no_grad():
        features = running.network[:3](x)
    LastLayer(layer).fit(features, y, Categorical())
    torch.testing.assert_close(running.network[3].weight, layer.weight, rtol=1e-3, atol=1e-4)


def test_an_early_look_compares_the_loss_of_pairs():
    running = with_pairs()
    advance(running, 10)
    x, y = running.plain_set.tensors

    def slow_log_likelihood():
        hidden = running.network[:3](x)
        parts = even_parts(range(len(x)), 32, seed=0)
        return -len(x) * torch.tensor([slow_pair_loss(hidden[part].double(), y[part]) for part in parts]).mean()

    running.batch_norm = "frozen"  # so that the statistics stay
    expected = running.method.elbo.estimate(slow_log_likelihood, samples=3)
    ours = running.method.elbo.estimate(lambda: running._log_likelihood(list(range(len(x)))), samples=3)
    torch.testing.assert_close(float(ours), float(expected), rtol=1e-5, atol=0)


def test_a_state_continues_bit_for_bit():
    whole, first, second = (with_pairs(steps=20) for _ in range(3))
    advance(whole, 20)
    advance(first, 10)
    second.restore(first.state())
    advance(second, 20)
    assert whole.objective(final=True) == second.objective(final=True)
    for p, q in zip(whole.network.parameters(), second.network.parameters(), strict=True):
        assert torch.equal(p, q)
    assert whole.history[-1] == second.history[-1]


def test_a_run_with_pairs():
    result = quick(pairs=True)
    assert result.evaluate(digits()[1])["accuracy"] > 0.5
    assert all(row["data_loss"] != row["nll"] for row in result.history)
    assert result.calibration.source == "none"  # a fitted classifier is as certain as it should be


@pytest.mark.parametrize(
    ("number", "settings", "expected"),
    [(12, {}, True), (12, {"pairs": False}, False), (12, {"method": "elbo"}, False), (3, {}, False), (42, {}, False)],
    ids=["few texts", "not wanted", "another method", "no two of a class", "more texts"],
)
def test_few_texts_and_a_sentence_encoder_have_pairs_by_default(number, settings, expected):
    result, notes = finetuned_texts(number, **settings)
    assert result.settings.pairs is expected
    assert (result.settings.learning_rates == PAIR_RATES) is expected
    assert sum("drawn together" in note for note in notes) == expected


@pytest.mark.parametrize(("classes", "expected"), [(2, True), (8, True), (9, False), (50, False)])
def test_texts_of_many_classes_are_blended_instead(classes, expected):
    decided = deelbo.Settings().decided(True, 10 * classes, classes)
    assert (decided.pairs, decided.learning_rates == PAIR_RATES) == (expected, expected)
    assert decided.blend == (1.0 if expected else None)  # None: decided by the features at the end


def test_a_network_of_another_kind_has_none_by_default():
    assert not quick().settings.pairs


def test_what_cannot_have_pairs_is_refused():
    with pytest.raises(ValueError, match=r"pairs=0\.75 is out of range"):
        deelbo.Settings(pairs=0.75)
    with pytest.raises(ValueError, match="pairs=True is only for method=de-elbo or elbo"):
        deelbo.Settings(method="map", pairs=True, prior_variances={"backbone": 1, "head": 1})
    numbers = torch.utils.data.TensorDataset(torch.randn(8, 64), torch.randn(8, 10))
    with pytest.raises(ValueError, match="pairs=True needs classes; the task is regression"):
        deelbo.finetune(network(), numbers, head="4", pairs=True, steps=2, device="cpu")
    ends_with_softmax = nn.Sequential(*network(), nn.LogSoftmax(1))
    with pytest.raises(ValueError, match="needs a network that ends with a linear layer"):
        deelbo.finetune(
            ends_with_softmax, digits()[0], head="4", pairs=True, steps=2, device="cpu", head_start="random"
        )
