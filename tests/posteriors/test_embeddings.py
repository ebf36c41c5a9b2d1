"""Embeddings whose unused rows get no noise: the same gradients as with noise everywhere."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import deelbo
from deelbo.posteriors import embeddings
from shared.cases import copies, same

pytestmark = pytest.mark.cpu_path


@pytest.fixture(autouse=True)
def _every_embedding(monkeypatch):
    monkeypatch.setattr(embeddings, "LEAST", 1)


class Reader(nn.Module):
    def __init__(self, tied=False):
        super().__init__()
        self.words = nn.Embedding(50, 6, dtype=torch.float64)
        self.places = nn.Embedding(8, 6, dtype=torch.float64)
        self.head = nn.Linear(6, 50 if tied else 3, bias=False, dtype=torch.float64)
        if tied:
            self.head.weight = self.words.weight

    def forward(self, tokens):
        return self.head(torch.tanh(self.words(tokens) + self.places(torch.arange(tokens.shape[1]))).mean(1))


TOKENS, LABELS = torch.tensor([[3, 9, 9], [4, 3, 20]]), torch.tensor([0, 2])
USED = [3, 4, 9, 20]


def build(tied=False, **options):
    torch.manual_seed(0)
    net = Reader(tied)
    return net, deelbo.IsotropicPosterior(net, init_scale=0.1, seed=1, **options)


def loss_of(net, tokens=TOKENS):
    return F.cross_entropy(net(tokens), LABELS)


def test_only_used_rows_are_drawn_and_all_come_back():
    net, posterior = build()
    before = copies(net)
    with posterior.sample():
        loss_of(net).backward()
        moved = (net.words.weight != before["words.weight"]).all(1).nonzero()[:, 0].tolist()
        assert moved == USED
    assert same(net, before)


@pytest.mark.parametrize("steps", [1, 3])
def test_gradients_are_those_of_autograd(steps):
    """Of one draw, and of several whose gradients add up although their rows differ."""
    net, posterior = build(scale_update="gradient")
    means = {name: p.detach().clone().requires_grad_() for name, p in net.named_parameters()}
    raw = posterior.raw_scale.detach().clone().requires_grad_()
    total = 0.0
    for step in range(steps):
        tokens = (TOKENS + step) % 50
        with posterior.sample():
            noise = {}
            for half in (tokens[:1], tokens[1:]):  # two backward passes under one draw
                F.cross_entropy(net(half), LABELS[:1]).backward()
            for name, p in net.named_parameters():
                noise[name] = (p.detach() - means[name].detach()) / posterior.scale.detach()
        drawn = {name: mean + F.softplus(raw) * noise[name] for name, mean in means.items()}
        for half in (tokens[:1], tokens[1:]):
            total = total + F.cross_entropy(torch.func.functional_call(net, drawn, (half,)), LABELS[:1])
    total.backward()
    for name, p in net.named_parameters():
        torch.testing.assert_close(p.grad, means[name].grad)
    torch.testing.assert_close(posterior.raw_scale.grad, raw.grad)


def test_a_row_has_the_noise_of_its_draw_whenever_it_is_asked_for():
    net, posterior = build()
    draws = []
    for order in (TOKENS, TOKENS.flip(0)):
        with posterior.sample(seed=5):
            for row in order:
                net(row[None]).sum().backward()
            draws.append(net.words.weight.detach()[USED].clone())
    assert torch.equal(*draws)
    noise = (draws[0] - net.words.weight.detach()[USED]) / 0.1
    assert noise.std().item() == pytest.approx(1, abs=0.35)
    assert len(noise.flatten().unique()) == noise.numel()


def test_tied_weights_and_other_uses_have_noise_everywhere():
    net, posterior = build(tied=True)
    mean = net.words.weight.detach().clone()
    with posterior.sample():
        assert (net.words.weight != mean).all()
    net, posterior = build()
    mean = net.words.weight.detach().clone()
    for _ in range(2):
        net.zero_grad()
        with posterior.sample():
            (loss_of(net) + net.words.weight[40].sum()).backward()  # a use that no hook sees
            drawn = net.words.weight.detach().clone()
    assert (drawn != mean).all()
    assert torch.equal(net.words.weight, mean)


def test_looking_at_the_mean_in_a_draw_and_the_density_of_a_draw():
    net, posterior = build()
    mean = net.words.weight.detach().clone()
    with posterior.sample():
        loss_of(net).backward()
        drawn = net.words.weight.detach().clone()
        with posterior.at_mean():
            assert torch.equal(net.words.weight, mean)
        assert torch.equal(net.words.weight, drawn)
        value = posterior.log_prob()
        normal = torch.distributions.Normal(torch.cat([s.flatten() for s in posterior._saved.means]), 0.1)
        eager = [p for p in net.parameters() if p.shape != mean.shape and p.shape != net.places.weight.shape]
        expected = normal.log_prob(torch.cat([p.detach().flatten() for p in eager])).sum()
        for embedding in posterior._lazy:
            rows, means = embedding._rows, embedding._means
            expected += torch.distributions.Normal(means, 0.1).log_prob(embedding.weight.detach()[rows]).sum()
    assert float(value) == pytest.approx(float(expected), rel=1e-10)
    assert torch.equal(net.words.weight, mean)


def test_without_gradients_all_rows_are_drawn():
    net, posterior = build()
    mean = net.words.weight.detach().clone()
    with torch.no_grad(), posterior.sample():
        assert (net.words.weight != mean).all()


def test_attached_and_explicit_loops_learn_the_same():
    results = []
    for attached in (False, True):
        net, posterior = build()
        objective = deelbo.DataEmphasizedELBO(posterior, deelbo.priors.l2_sp(net, head="head"), num_data=20)
        optimizer = torch.optim.SGD(net.parameters() if attached else posterior.parameters(), lr=0.1)
        if attached:
            objective.attach(optimizer)
        for step in range(4):
            optimizer.zero_grad()
            tokens = (TOKENS + step) % 50
            if attached:
                loss_of(net, tokens).backward()
            else:
                with posterior.sample():
                    loss_of(net, tokens).backward()
                objective.backward()
            optimizer.step()
        results.append(
            [posterior.scale.item(), *objective.prior.variances.values(), *net.words.weight.flatten().tolist()]
        )
    assert results[0] == pytest.approx(results[1], rel=1e-12)


def test_a_second_backward_pass_counts_the_same_rows():
    net, posterior = build(scale_update="gradient")
    objective = deelbo.DataEmphasizedELBO(posterior, deelbo.priors.l2_sp(net, head="head"), num_data=20)
    objective.attach(torch.optim.SGD(net.parameters(), lr=0.1))
    loss = loss_of(net)
    loss.backward(retain_graph=True)
    once = posterior.raw_scale.grad.item()
    loss.backward()
    assert posterior.raw_scale.grad.item() == pytest.approx(2 * once)


def test_a_copy_draws_all_rows():
    net, posterior = build()
    both = copy.deepcopy((net, posterior))
    mean = both[0].words.weight.detach().clone()
    with both[1].sample():
        loss_of(both[0]).backward()
        assert (both[0].words.weight != mean).all()


def test_an_index_out_of_range_is_the_embeddings_own_error():
    net, posterior = build()
    before = copies(net)
    with pytest.raises(IndexError), posterior.sample():
        net(torch.tensor([[60]]))
    assert same(net, before)
