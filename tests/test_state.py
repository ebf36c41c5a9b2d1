"""Saving, loading and moving: training that goes on is training that never stopped."""

import copy

import pytest
import safetensors.torch
import torch
import torch.nn.functional as F
from torch import nn

import deelbo
from deelbo.priors import GaussianPrior, PriorGroup
from shared.cases import Net, batch
from shared.covariances import low_rank


def build(posterior_class=deelbo.IsotropicPosterior, prior="l2_sp", seed=None, attach=False):
    net = Net(dtype=torch.float32)
    posterior = posterior_class(net, init_scale=0.01, seed=seed)
    if prior == "low rank":
        body = nn.ParameterList(p for name, p in net.named_parameters() if not name.startswith("head"))
        groups = {"backbone": PriorGroup(body, None, low_rank(body, 2)[0]), "head": PriorGroup(net.head.parameters())}
        prior = GaussianPrior(groups)
    else:
        prior = getattr(deelbo.priors, prior)(net, head="head")
    objective = deelbo.DataEmphasizedELBO(posterior, prior, num_data=12)
    if attach:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        objective.attach(optimizer)
    else:
        optimizer = torch.optim.SGD(posterior.parameters(), lr=0.1, momentum=0.9)
    return net, objective, optimizer


def train(net, objective, optimizer, steps, attach):
    x, y = batch(dtype=torch.float32)
    for _ in range(steps):
        optimizer.zero_grad()
        if attach:
            F.cross_entropy(net(x), y).backward()
        else:
            with objective.posterior.sample():
                F.cross_entropy(net(x), y).backward()
            objective.backward()
        optimizer.step()


@pytest.mark.parametrize("attach", [False, True])
@pytest.mark.parametrize("prior", ["l2_zero", "l2_sp", "per_layer", "low rank"])
@pytest.mark.parametrize("posterior_class", [deelbo.IsotropicPosterior, deelbo.DiagonalPosterior])
def test_resumed_training_is_bit_for_bit_the_same(tmp_path, posterior_class, prior, attach):
    run = build(posterior_class, prior, attach=attach)
    train(*run, 3, attach)
    net, objective, optimizer = run
    tensors = {f"net.{k}": v for k, v in net.state_dict().items()}
    tensors |= {f"objective.{k}": v for k, v in objective.state_dict().items()}
    safetensors.torch.save_file(tensors, tmp_path / "state.safetensors")
    optimizer_state = copy.deepcopy(optimizer.state_dict())
    train(*run, 3, attach)

    torch.manual_seed(99)
    other = build(posterior_class, prior, attach=attach)
    tensors = safetensors.torch.load_file(tmp_path / "state.safetensors")
    for part, name in zip(other, ("net.", "objective."), strict=False):
        part.load_state_dict({k.removeprefix(name): v for k, v in tensors.items() if k.startswith(name)})
    other[2].load_state_dict(optimizer_state)
    train(*other, 3, attach)

    assert all(torch.equal(p, r) for p, r in zip(net.parameters(), other[0].parameters(), strict=True))
    assert torch.equal(objective.posterior.scale, other[1].posterior.scale)
    assert objective.prior.variances == other[1].prior.variances
    assert objective.kl() == other[1].kl()


def test_parts_have_their_own_state_dicts():
    net, objective, optimizer = build(seed=4)
    train(net, objective, optimizer, 2, attach=False)
    net_, other, _ = build(seed=5)
    for part in ("posterior", "prior"):
        getattr(other, part).load_state_dict(getattr(objective, part).state_dict())
    net_.load_state_dict(net.state_dict())
    assert other.prior.variances == objective.prior.variances
    assert other.posterior.next_key() == objective.posterior.next_key()
    assert float(other.kl()) == pytest.approx(float(objective.kl()), rel=1e-12)
    assert "raw_scale" in objective.posterior.state_dict()
    assert not any(key.startswith("body") for key in objective.posterior.state_dict())  # the network keeps the means


def test_everything_follows_the_network_to_another_dtype():
    net, objective, optimizer = build()
    train(net, objective, optimizer, 1, attach=False)
    kl = float(objective.kl())
    net.double()
    objective.to(torch.float64)
    assert float(objective.kl()) == pytest.approx(kl, rel=1e-6)
    x, y = batch()
    optimizer.zero_grad()
    with objective.posterior.sample():
        F.cross_entropy(net(x), y).backward()
    objective.backward()
    assert all(p.grad.dtype == torch.float64 for p in objective.posterior.means.values())


def test_moving_to_the_meta_device_moves_every_tensor():
    _, objective, _ = build(prior="l2_sp")
    objective.to("meta")
    assert all(t.device.type == "meta" for t in [*objective.posterior.scale_parameters(), *objective.prior.buffers()])
