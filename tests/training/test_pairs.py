"""The phase of pairs: its loss against a slow formula, and what it leaves of the rest of training."""

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cosine_similarity

import deelbo
from deelbo.likelihoods.categorical import IGNORED
from deelbo.training.batches import even_parts
from deelbo.training.pairs import PairPhase, pair_loss
from shared.candidates import candidate
from shared.digits import digits, network, quick


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


def with_pairs(steps, **options):
    running = candidate(**options)
    running.pairs = PairPhase(running.network[3], steps)
    return running


def advance(running, until):
    for _ in running.advance(until):
        pass


def test_the_classifier_waits_for_the_features():
    running = with_pairs(steps=10)
    with torch.no_grad():
        running.network[3].weight.zero_()
    advance(running, 9)  # three epochs
    assert running.network[3].weight.abs().max() == 0
    assert running.history[-1]["data_loss"] < running.history[0]["data_loss"] < 0.6
    assert running.history[-1]["nll"] > 2  # not trained, but shown
    advance(running, 10)
    features = [p.detach().clone() for p in running.network[:3].parameters()]
    advance(running, 40)
    assert all(torch.equal(p, q) for p, q in zip(features, running.network[:3].parameters(), strict=True))
    last = running.history[-1]
    assert last["data_loss"] == last["nll"] < 1
    assert not running.network[3]._forward_pre_hooks


def test_the_schedule_of_the_rate_begins_anew():
    running = with_pairs(steps=10, rate=0.1)
    rates = []
    for _ in range(20):
        rates.append(running._rate())
        advance(running, running.step + 1)
    assert rates[0] == rates[10] == 0.1
    assert rates[9] < 0.01 < rates[19] < rates[11]  # cosines over 10 and 30 steps


def test_an_early_look_compares_the_loss_of_pairs():
    running = with_pairs(steps=20)
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


def test_a_state_before_the_end_of_the_phase_continues_bit_for_bit():
    whole, first, second = (with_pairs(steps=12) for _ in range(3))
    advance(whole, 20)
    advance(first, 10)
    second.restore(first.state())
    advance(second, 20)
    for p, q in zip(whole.network.parameters(), second.network.parameters(), strict=True):
        assert torch.equal(p, q)
    assert whole.history[-1] == second.history[-1]


def test_a_run_with_pairs():
    result = quick(pairs=0.5)
    assert result.evaluate(digits()[1])["accuracy"] > 0.5
    first, *_, last = sorted(result.history, key=lambda row: row["step"])
    assert first["data_loss"] != first["nll"]
    assert last["data_loss"] == last["nll"]


def test_what_cannot_have_pairs_is_refused():
    for share in (-0.1, 1.0, math.nan):
        with pytest.raises(ValueError, match=r"pairs=.* is out of range"):
            deelbo.Settings(pairs=share)
    numbers = torch.utils.data.TensorDataset(torch.randn(8, 64), torch.randn(8, 10))
    with pytest.raises(ValueError, match=r"pairs=0\.5 needs classes; the task is regression"):
        deelbo.finetune(network(), numbers, head="4", pairs=0.5, steps=2, device="cpu")
    ends_with_softmax = nn.Sequential(*network(), nn.LogSoftmax(1))
    with pytest.raises(ValueError, match="needs a network that ends with a linear layer"):
        deelbo.finetune(ends_with_softmax, digits()[0], head="4", pairs=0.5, steps=2, device="cpu", head_start="random")
