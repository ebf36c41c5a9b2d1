"""Measuring a run leaves nothing behind."""

import random

import pytest
import torch

from deelbo.training.throughput import measure
from shared.candidates import candidate
from shared.clocks import Ticking, Timed


def timed_candidate(**options):
    found = candidate(**options)
    found.batches.steps.dataset = found.plain_set = Timed(found.plain_set)
    return found, found.plain_set.clock


def test_costs_are_those_of_the_examples():
    """Each example takes a second; a batch has 32."""
    running, clock = timed_candidate()
    costs = measure(running, 1000.0, 10, clock)
    assert running.step == 10
    assert (costs.step, costs.forward, costs.objective, costs.epoch, costs.draw) == (32, 1, 1, 0, 0)


@pytest.mark.parametrize(
    ("limit", "most", "steps"), [(1.0, 10, 1), (4.0, 10, 2), (100.0, 10, 4), (200.0, 10, 6), (200.0, 3, 3), (9.0, 1, 1)]
)
def test_a_slow_network_is_measured_shortly(limit, most, steps):
    running, clock = timed_candidate()
    costs = measure(running, limit, most, clock)
    assert (costs.step, costs.forward, costs.objective) == (32, 1, 1)
    assert running.step == steps
    assert clock() <= 32 * steps + max(3 * limit, 3 * 96)


def test_what_is_done_after_an_epoch_is_measured():
    running, clock = timed_candidate(method="la-lml")
    costs = measure(running, 1000.0, 3, clock)
    assert costs.epoch == costs.objective == 2  # the likelihood, and the gradients of every example
    assert costs.draw == 0


@pytest.mark.parametrize("method", ["de-elbo", "map", "la-lml"])
def test_everything_is_put_back(method):
    options = {"prior_variances": {"backbone": 0.1, "head": 1.0}} if method == "map" else {}
    running = candidate(method=method, **options)
    network = running.network.train()
    network[2].eval()
    modes = [module.training for module in network.modules()]
    before = {name: value.clone() for name, value in network.state_dict().items()}
    torch.manual_seed(3)
    random.seed(3)
    expected = torch.rand(1), random.random()
    torch.manual_seed(3)
    random.seed(3)
    measure(running, 10.0, 5, Ticking())
    assert (torch.rand(1), random.random()) == expected
    assert running.step == 5
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert modes == [module.training for module in network.modules()]
    assert all(weight.grad is None for weight in network.parameters())
    assert not running.optimizer.state


def test_everything_is_put_back_after_an_error():
    running = candidate()
    before = {name: value.clone() for name, value in running.network.state_dict().items()}
    times = iter(range(3))
    with pytest.raises(StopIteration):
        measure(running, 10.0, 5, lambda: next(times))
    assert running.step > 0
    assert all(torch.equal(value, before[name]) for name, value in running.network.state_dict().items())
