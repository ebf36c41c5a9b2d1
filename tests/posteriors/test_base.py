import copy
import os
import signal

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import deelbo
from shared.cases import Net, batch, copies, same

POSTERIORS = [deelbo.IsotropicPosterior, deelbo.DiagonalPosterior]
both = pytest.mark.parametrize("posterior_class", POSTERIORS)


@both
def test_weights_are_a_draw_inside_and_the_mean_bit_for_bit_outside(posterior_class):
    net = Net(dtype=torch.float32)
    before = copies(net)
    posterior = posterior_class(net, init_scale=0.1)
    with posterior.sample():
        for name, p in net.named_parameters():
            assert not torch.isclose(p.detach(), before[name]).any()
    assert same(net, before)


@both
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_mean_comes_back_after_an_exception(posterior_class, error):
    net = Net()
    before = copies(net)
    posterior = posterior_class(net)
    with pytest.raises(error), posterior.sample():
        raise error
    assert same(net, before)
    with posterior.sample():
        pass


@pytest.mark.cpu_path
def test_mean_comes_back_after_ctrl_c_while_drawing(monkeypatch):
    net = nn.Linear(2000, 800)
    before = copies(net)
    posterior = deelbo.IsotropicPosterior(net)
    drawn = []

    def interrupted(like, seed, k):
        drawn.append(k)
        if len(drawn) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return torch.ones_like(like)

    monkeypatch.setattr("deelbo.posteriors.isotropic.standard_normal", interrupted)
    with pytest.raises(KeyboardInterrupt), posterior.sample():
        pass
    assert len(drawn) >= 3
    assert same(net, before)
    assert not posterior.sampling


@pytest.mark.cpu_path
def test_mean_comes_back_after_an_error_while_drawing(monkeypatch):
    net = nn.Linear(2000, 800)
    before = copies(net)
    posterior = deelbo.IsotropicPosterior(net)

    def fails(like, seed, k):
        if k == 5:
            raise MemoryError("no room")
        return torch.ones_like(like)

    monkeypatch.setattr("deelbo.posteriors.isotropic.standard_normal", fails)
    with pytest.raises(MemoryError), posterior.sample():
        pass
    assert same(net, before)
    assert not posterior.sampling


def test_mean_comes_back_when_a_gradient_is_refused():
    net = nn.Embedding(5, 3, sparse=True)
    before = copies(net)
    posterior = deelbo.IsotropicPosterior(net)
    with pytest.raises(ValueError, match="sparse"), posterior.sample():
        net(torch.tensor([1, 2])).sum().backward()
    assert same(net, before)


def test_nested_use_is_an_error_that_leaves_the_outer_draw():
    posterior = deelbo.IsotropicPosterior(Net())
    with posterior.sample(seed=1):
        drawn = copies(posterior.model)
        with pytest.raises(RuntimeError, match="nested"), posterior.sample():
            pass
        assert same(posterior.model, drawn)
    assert not posterior.sampling


def test_backward_after_the_block_is_an_error():
    net = Net()
    x, y = batch()
    with deelbo.IsotropicPosterior(net).sample():
        loss = F.cross_entropy(net(x), y)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@both
def test_seeded_draws_repeat_and_leave_the_sequence_alone(posterior_class):
    sequences = []
    for peek in (False, True):
        torch.manual_seed(0)
        posterior = posterior_class(Net(), seed=5)
        draws = []
        for _ in range(3):
            if peek:
                with posterior.sample(seed=9):
                    repeated = copies(posterior.model)
                with posterior.sample(seed=9):
                    assert same(posterior.model, repeated)
            with posterior.sample():
                draws.append(posterior.model.head.weight.detach().clone())
        sequences.append(torch.stack(draws))
    assert torch.equal(*sequences)
    assert not torch.equal(sequences[0][0], sequences[0][1])


def test_sequence_follows_the_global_seed():
    keys = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        keys.append(deelbo.IsotropicPosterior(Net()).next_key())
    assert keys[0] == keys[1] != keys[2]


@both
def test_at_mean_shows_the_mean_in_the_middle_of_a_draw(posterior_class):
    net = Net()
    before = copies(net)
    posterior = posterior_class(net, init_scale=0.1)
    with posterior.sample():
        drawn = copies(net)
        with posterior.at_mean(), posterior.at_mean():
            assert same(net, before)
        assert same(net, drawn)
    with posterior.at_mean():
        assert same(net, before)


def test_at_mean_between_forward_and_backward_changes_nothing():
    gradients = []
    for look in (False, True):
        torch.manual_seed(1)
        net = Net()
        posterior = deelbo.IsotropicPosterior(net, init_scale=0.1, seed=2)
        x, y = batch()
        with posterior.sample():
            loss = F.cross_entropy(net(x), y)
            if look:
                with posterior.at_mean(), torch.no_grad():
                    net(x)
            loss.backward()
        gradients.append([p.grad.clone() for p in posterior.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


@both
def test_outer_autocast_block_sees_every_draw(posterior_class):
    net = nn.Linear(64, 64)
    posterior = posterior_class(net, init_scale=0.5)
    outputs = []
    x = torch.randn(3, 64)
    with torch.autocast("cpu", dtype=torch.float16):
        mean = net(x)
        for _ in range(2):
            with posterior.sample():
                outputs.append(net(x))
        assert torch.equal(net(x), mean)
    assert not torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], mean)


@both
def test_parameters_are_means_and_unconstrained_scale(posterior_class):
    net = Net()
    posterior = posterior_class(net)
    names = dict(posterior.named_parameters())
    assert all(names[name] is p for name, p in net.named_parameters())
    rest = [p for name, p in names.items() if name not in dict(net.named_parameters())]
    assert [id(p) for p in rest] == [id(p) for p in posterior.scale_parameters()]
    assert all(float(F.softplus(p.detach()).max()) == pytest.approx(1e-4) for p in rest)
    assert (posterior.scale > 0).all()


def test_complex_weights_count_twice():
    class Fourier(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(3, 4, dtype=torch.complex128))

    net = Fourier()
    posterior = deelbo.IsotropicPosterior(net, init_scale=0.1, scale_update="gradient")
    assert posterior.num_params == 24
    before = copies(net)
    with posterior.sample():
        noise = (net.weight - before["weight"]).detach()
        assert (noise.real != 0).all()
        assert (noise.imag != 0).all()
        net.weight.abs().square().sum().backward()
        drawn = net.weight.detach().clone()
    eps = noise / 0.1
    expected = 2 * (drawn.real * eps.real + drawn.imag * eps.imag).sum() * torch.sigmoid(posterior.raw_scale.detach())
    assert float(posterior.raw_scale.grad) == pytest.approx(float(expected), rel=1e-8)
    assert same(net, before)
    with pytest.raises(ValueError, match="complex"):
        deelbo.DiagonalPosterior(net)


@both
def test_channels_last_and_moved_weights(posterior_class):
    net = nn.Conv2d(3, 8, 3)
    posterior = posterior_class(net, init_scale=0.1)
    with posterior.sample():
        pass
    net.to(memory_format=torch.channels_last).double()
    before = copies(net)
    with posterior.sample():
        assert not torch.isclose(net.weight.detach(), before["weight"]).any()
        net(torch.randn(2, 3, 5, 5, dtype=torch.float64)).square().sum().backward()
    assert same(net, before)
    assert all(bool(p.grad.isfinite().all()) for p in posterior.scale_parameters())


def test_optimizer_step_inside_the_block_is_an_error():
    net = Net()
    posterior = deelbo.IsotropicPosterior(net)
    optimizer = torch.optim.SGD(posterior.parameters(), lr=0.1)
    before = copies(net)
    x, y = batch()

    def train():
        with posterior.sample():
            F.cross_entropy(net(x), y).backward()
            optimizer.step()

    with pytest.raises(RuntimeError, match=r"call optimizer.step"):
        train()
    assert same(net, before)


@pytest.mark.cpu_path
@pytest.mark.parametrize("during", ["swap", "restore"])
def test_ctrl_c_in_a_pass_leaves_the_mean_and_no_stuck_state(monkeypatch, during):
    from deelbo.posteriors import saved_means

    net = Net()
    before = copies(net)
    posterior = deelbo.IsotropicPosterior(net, init_scale=0.1)
    prior = deelbo.priors.l2_zero(net, head="head")
    real = saved_means.over_chunks

    def interrupted(*args, **options):  # as an interrupt that arrives during the pass is raised after it
        real(*args, **options)
        monkeypatch.setattr(saved_means, "over_chunks", real)
        raise KeyboardInterrupt

    def look():
        with torch.no_grad(), posterior.sample():
            monkeypatch.setattr(saved_means, "over_chunks", interrupted)
            if during == "swap":
                prior.kl(posterior)

    with pytest.raises(KeyboardInterrupt):
        look()
    assert same(net, before)
    with posterior.sample():
        pass


def test_inference_mode_leaves_training_possible():
    net = Net()
    posterior = deelbo.IsotropicPosterior(net)
    prior = deelbo.priors.l2_sp(net, head="head")
    objective = deelbo.DataEmphasizedELBO(posterior, prior, 12)
    x, y = batch()
    with torch.inference_mode():
        objective.estimate(lambda: -F.cross_entropy(net(x), y, reduction="sum"), samples=2)
        objective.estimate_importance_weighted(lambda: -F.cross_entropy(net(x), y, reduction="sum"), samples=2)
        with posterior.sample():
            net(x)
    with posterior.sample():
        F.cross_entropy(net(x), y).backward()
    objective.backward()


def test_numbers_out_of_range_are_refused():
    with pytest.raises(ValueError, match="seed"):
        deelbo.IsotropicPosterior(Net(), seed=2**63)
    with pytest.raises(ValueError, match="between 1e-30"):
        deelbo.IsotropicPosterior(Net(), init_scale=1e-200)


def test_old_gradients_alone_are_no_gradient_of_the_block():
    net = Net()
    posterior = deelbo.IsotropicPosterior(net)
    x, y = batch()
    F.cross_entropy(net(x), y).backward()
    with posterior.sample():
        pass
    assert not posterior.collected


@both
def test_deep_copies_of_an_objective_work(posterior_class):
    net = Net()
    posterior = posterior_class(net)
    objective = deelbo.DataEmphasizedELBO(posterior, deelbo.priors.l2_sp(net, head="head"), 12)
    other = copy.deepcopy(objective)
    x, y = batch()
    with other.posterior.sample():
        F.cross_entropy(other.posterior.model(x), y).backward()
    other.backward()
    assert net.head.weight.grad is None
