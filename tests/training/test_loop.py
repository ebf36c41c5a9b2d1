import accelerate
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

from deelbo.likelihoods import Categorical
from deelbo.training.batches import even_parts
from deelbo.training.loop import Candidate, _View
from deelbo.training.method import METHODS, MethodInputs
from deelbo.training.settings import Settings


def candidate(steps=40, rate=0.1, init_scale=0.05, **options):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10))
    images, labels = (torch.tensor(a)[:96] for a in load_digits(return_X_y=True))
    data = TensorDataset(images.float() / 16, labels)
    settings = Settings(steps=steps, batch_size=32, samples=3, init_scale=init_scale, **options)
    likelihood, prior = Categorical(), settings.prior_recipe().make(network, "3")
    method = METHODS[settings.method].make(MethodInputs(network, prior, likelihood, len(data), 10, settings))
    return Candidate(
        network,
        method=method,
        likelihood=likelihood,
        train_set=data,
        plain_set=data,
        learning_rate=rate,
        settings=settings,
        accelerator=accelerate.Accelerator(cpu=True),
    )


def slow_log_likelihood(network, x, y):
    """With batch-normalisation statistics of the weights in place, each layer written out."""
    first, norm, _, last = network
    hidden = first(x)
    parts = [hidden[part] for part in even_parts(range(len(x)), 32, seed=0)]
    means = torch.stack([part.mean(0) for part in parts]).mean(0)
    variances = torch.stack([part.var(0) for part in parts]).mean(0)
    scaled = (hidden - means) / (variances + norm.eps).sqrt() * norm.weight + norm.bias
    return -cross_entropy(last(scaled.relu()), y, reduction="sum").double()


def test_each_draw_has_its_own_batch_normalisation():
    running = candidate()
    for _ in running.advance(40):
        pass
    x, y = running.plain_set.tensors
    method, network = running.method, running.network
    expected = method.elbo.estimate(lambda: slow_log_likelihood(network, x, y), samples=3)
    torch.testing.assert_close(running.objective(final=True), float(expected), rtol=1e-5, atol=0)
    hidden = network[0](x)
    torch.testing.assert_close(network[1].running_mean, hidden.mean(0))  # the network keeps those of the mean


def test_an_early_look_leaves_nothing_behind():
    looked, other = candidate(), candidate()
    for _ in looked.advance(7):
        pass
    before = looked.state()
    looked.objective(final=False)
    looked.restore(before)
    looked.cool(5)
    for _ in looked.advance(12):
        pass
    looked.objective(final=False)
    looked.restore(before)
    for each in (looked, other):
        for _ in each.advance(20):
            pass
    for p, q in zip(looked.network.state_dict().values(), other.network.state_dict().values(), strict=True):
        assert torch.equal(p, q)
    assert [row["nll"] for row in looked.history][-1] == [row["nll"] for row in other.history][-1]


def test_cooling_takes_the_rate_to_zero():
    running = candidate()
    for _ in running.advance(10):
        pass
    start = running._rate()
    running.cool(4)
    rates = []
    for _ in running.advance(14):
        rates.append(running._rate())
    assert torch.allclose(torch.tensor(rates), start * torch.tensor([0.8, 0.6, 0.4, 0.2]))
    assert len(running.history) == len([row for row in running.history if row["step"] <= 10])


def test_an_early_look_is_the_objective_at_the_best_scale():
    """With a tiny scale, the first moves of the means cost more than they gain, and a large rate looks worst."""
    fast, slow = candidate(steps=200, rate=0.1, init_scale=1e-4), candidate(steps=200, rate=0.0001, init_scale=1e-4)
    for running in (fast, slow):
        for _ in running.advance(8):
            pass
    raw = [running.method.objective(_View(running, list(range(96))), 3) for running in (fast, slow)]
    assert raw[0] < raw[1]
    early = [running.objective(final=False) for running in (fast, slow)]
    assert early[0] > early[1]
    assert early[0] > raw[0]
    best = fast.method.posterior.scale.item() / 4
    values = []
    for factor in (1 / 16, 1, 16):
        fast.method.posterior.set_scale(best * factor)
        assert fast.method.posterior.scale.item() == pytest.approx(best * factor, rel=1e-5)
        values.append(fast.method.objective(_View(fast, list(range(96))), 3))
    assert max(values) == values[1]
