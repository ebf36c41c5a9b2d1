import pytest
import torch
from torch.nn.functional import cross_entropy

from deelbo.training.batches import even_parts
from shared.candidates import candidate


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


@pytest.mark.parametrize("posterior", ["isotropic", "diagonal"])
def test_a_step_averages_over_its_draws(posterior):
    """Three draws in a step against autograd at the same three draws, one after the other."""
    options = {"draws": 3, "posterior": posterior, "scale_update": "gradient", "clip": None, "kappa": 2.0}
    one, other = (candidate(steps=4, **options) for _ in range(2))
    for each in (one, other):
        each.batch_norm = "frozen"
    next(iter(one.advance(1)))
    indices = other.batches.steps.indices(0)
    x, y = other.plain_set.tensors[0][indices], other.plain_set.tensors[1][indices]
    other.network.eval()
    q, total = other.method.posterior, [torch.zeros_like(p) for p in other.method.parameters()]
    for _ in range(3):
        other.optimizer.zero_grad()
        q.finished = True  # each draw by itself
        with q.sample():
            cross_entropy(other.network(x), y).backward()
        for sum_, parameter in zip(total, other.method.parameters(), strict=True):
            sum_ += parameter.grad / 3
    other.optimizer.zero_grad()
    other.method.prior.update_variances(q)
    other.method.prior.add_gradient(1 / other.method.objective_scale)
    q.add_kl_gradient(other.method.prior.named_groups().values(), 1 / other.method.objective_scale)
    for found, data_part, parameter in zip(one.method.parameters(), total, other.method.parameters(), strict=True):
        torch.testing.assert_close(found.grad, data_part + parameter.grad, rtol=2e-4, atol=2e-6)
    assert q.draws == one.method.posterior.draws == 3
    assert one.clock["examples"] == 32
