import math
import os
import signal

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import deelbo
from deelbo.swag import DivergedError, collect


class Regression(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(size, dtype=torch.float64))


@pytest.mark.slow
def test_linear_regression_has_the_posterior_that_it_should():
    """Gradient descent with the noise of Langevin, as a loss of the user's own, walks about the exact posterior."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(50, 3, dtype=torch.float64, generator=generator) @ torch.tensor(
        [[1.0, 0.6, 0.0], [0.0, 0.8, 0.0], [0.0, 0.0, 0.5]], dtype=torch.float64
    )
    y = x @ torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64) + torch.randn(
        50, dtype=torch.float64, generator=generator
    )
    precision = x.T @ x + torch.eye(3, dtype=torch.float64)
    rate = 0.1 / precision.diagonal().max().item()

    def loss(model, batch):
        rows, targets = batch
        energy = 0.5 * (targets - rows @ model.weights).square().sum() + 0.5 * model.weights.square().sum()
        noise = torch.randn(3, dtype=torch.float64) * math.sqrt(2 / rate)
        return energy + noise @ model.weights

    steps = 8_000
    posterior = collect(
        Regression(3),
        [(x, y)],
        loss,
        head=(),
        steps=steps,
        burn_in=500,
        every=10,
        rank=700,
        learning_rate=rate,
        momentum=0,
    )
    exact = torch.linalg.inv(precision)
    torch.testing.assert_close(
        posterior.mean["weights"], exact @ x.T @ y, rtol=0, atol=4 * exact.max().sqrt().item() / 20
    )
    torch.testing.assert_close(posterior.variance["weights"], exact.diagonal(), rtol=0.25, atol=0)
    rows = posterior.deviations["weights"]
    covariance = rows.T @ rows / (len(rows) - 1)
    scale = exact.diagonal().sqrt()
    torch.testing.assert_close(covariance / scale / scale[:, None], exact / scale / scale[:, None], rtol=0, atol=0.3)
    assert covariance[0, 1] < 0  # correlated inputs, so the weights are anticorrelated


def digits_like(number=40, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(number) % 3
    return TensorDataset(torch.randn(number, 6, generator=generator) + labels[:, None], labels)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 3))


FAST = {"head": "4", "steps": 60, "rank": 4, "learning_rate": 0.05}


def loader():
    return DataLoader(digits_like(), batch_size=10, shuffle=True)


def test_network_ends_at_the_mean_with_its_statistics():
    model = network()
    seen = []
    posterior = collect(model, loader(), listener=seen.append, **FAST)
    assert set(posterior.mean) == {"0.weight", "0.bias", "1.weight", "1.bias"}  # not the head
    for name, mean in posterior.mean.items():
        assert torch.equal(mean, model.get_parameter(name).detach())
        assert (posterior.variance[name] >= 0).all()
    assert posterior.rank == 4
    assert posterior.notes["snapshots"] == 30
    assert [event.step for event in seen] == list(range(1, 61))
    assert seen[-1].loss < seen[0].loss
    assert torch.equal(posterior.buffers["1.running_mean"], model[1].running_mean)
    inputs = torch.stack([x for x, _ in digits_like()])
    hidden = model[0](inputs)
    assert not model.training
    # Every epoch of the 60 batches is the whole set, once: averages of batches of 10 are those of the set.
    torch.testing.assert_close(model[1].running_mean, hidden.mean(0).detach(), rtol=1e-4, atol=1e-5)
    accuracy = (model(inputs).argmax(1) == digits_like().tensors[1]).double().mean()
    assert accuracy > 0.7


def test_interrupted_and_resumed_is_the_same(tmp_path):
    whole = collect(network(), loader(), **FAST)
    file = tmp_path / "part"

    def stop(event):
        if event.step == 37:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        collect(network(), loader(), checkpoint=file, listener=stop, **FAST)
    steps = []
    resumed = collect(network(), loader(), checkpoint=file, listener=lambda event: steps.append(event.step), **FAST)
    assert steps[0] == 38
    for name in whole.mean:
        assert torch.equal(whole.mean[name], resumed.mean[name])
        assert torch.equal(whole.deviations[name], resumed.deviations[name])
    assert torch.equal(whole.buffers["1.running_var"], resumed.buffers["1.running_var"])
    again = collect(network(), loader(), checkpoint=file, **FAST)  # finished: nothing is trained
    assert torch.equal(whole.variance["0.weight"], again.variance["0.weight"])
    with pytest.raises(ValueError, match=r"other settings .*delete it.*learning_rate: 0.05 -> 0.1"):
        collect(network(), loader(), checkpoint=file, **{**FAST, "learning_rate": 0.1})


@pytest.mark.parametrize("kind", ["workers", "own order", "stream"])
def test_any_loader_resumes(tmp_path, kind):
    class Noisy(TensorDataset):
        def __getitem__(self, index):
            x, y = super().__getitem__(index)
            return x + 0.1 * torch.randn(6), y

    class OwnOrder:
        def __iter__(self):
            data = digits_like().tensors
            return iter([(data[0][i], data[1][i]) for i in torch.randperm(40).split(10)])

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(digits_like())

    def make():
        noisy = DataLoader(Noisy(*digits_like().tensors), 10, shuffle=True, num_workers=1)
        return {"workers": noisy, "own order": OwnOrder(), "stream": DataLoader(Stream(), 10)}[kind]

    fast = {**FAST, "steps": 14, "rank": 2}
    whole = collect(network(), make(), **fast)
    torch.rand(3)  # what the caller draws does not matter

    def stop(event):
        if event.step == 6:
            raise RuntimeError

    with pytest.raises(RuntimeError):
        collect(network(), make(), checkpoint=tmp_path / "part", checkpoint_seconds=0, listener=stop, **fast)
    resumed = collect(network(), make(), checkpoint=tmp_path / "part", **fast)
    assert all(torch.equal(whole.mean[n], resumed.mean[n]) for n in whole.mean)


def test_frozen_batch_norm_keeps_its_statistics_and_gradients_are_allowed_in_a_loss():
    class Frozen(nn.BatchNorm1d):
        def train(self, mode=True):
            return super().train(False)

    model = network()
    model[1] = Frozen(8)
    model[1].running_mean.fill_(3.0)
    collect(model, loader(), **FAST)
    assert (model[1].running_mean == 3).all()

    def penalised(model, batch):
        x = batch[0].requires_grad_()
        loss = nn.functional.cross_entropy(model(x), batch[1])
        (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
        return loss + gradient.square().sum()

    collect(network(), loader(), penalised, **{**FAST, "steps": 8, "rank": 1})


def test_weight_decay_and_seed_matter():
    plain, decayed, other = (
        collect(network(), loader(), **FAST, **options) for options in ({}, {"weight_decay": 0.5}, {"seed": 1})
    )
    assert decayed.mean["0.weight"].norm() < 0.7 * plain.mean["0.weight"].norm()
    assert not torch.equal(plain.mean["0.weight"], other.mean["0.weight"])


def test_self_supervised_loss_and_loaders_without_length():
    model = nn.Sequential(nn.Linear(6, 2), nn.Linear(2, 6))

    def reconstruction(model, batch):
        return (model(batch) - batch).square().mean()

    class Stream:
        def __iter__(self):
            return iter(torch.stack([x for x, _ in digits_like()]).split(8))

    posterior = collect(model, Stream(), reconstruction, head=(), steps=20, rank=3)
    assert set(posterior.mean) == {"0.weight", "0.bias", "1.weight", "1.bias"}


def test_refusals():
    with pytest.raises(ValueError, match="fewer than two snapshots"):
        collect(network(), loader(), **{**FAST, "burn_in": 59})
    with pytest.raises(ValueError, match="only once"):
        collect(network(), (batch for batch in loader()), **FAST)

    def infinite(model, batch):  # its gradient is
        return torch.sqrt((model[0].weight * 0).sum()) + model[4].bias.sum()

    with pytest.raises(DivergedError, match="a weight is not finite"):
        collect(network(), loader(), infinite, **{**FAST, "burn_in": 0, "every": 1})
    frozen = network()
    frozen[0].requires_grad_(False)
    frozen[1].requires_grad_(False)
    with pytest.raises(ValueError, match="frozen"):
        collect(frozen, loader(), **FAST)
    with pytest.raises(ValueError, match="learning_rate"):
        collect(network(), loader(), **{**FAST, "learning_rate": 0.0})
    with pytest.raises(ValueError, match="no batches"):
        collect(network(), [], **FAST)
    with pytest.raises(ValueError, match="names no parameter"):
        collect(network(), loader(), **{**FAST, "head": "fc"})
    with pytest.raises(DivergedError, match="smaller learning rate"):
        collect(network(), loader(), lambda model, batch: model(batch[0]).sum() * math.inf, **FAST)
    with pytest.warns(UserWarning, match="fewer than rank=99"):
        collect(network(), loader(), **{**FAST, "rank": 99})
    assert deelbo.swag.collect is collect
