"""Which parameters of a network are random, and what is refused."""

import pytest
import torch
from torch import nn

import deelbo
from shared.cases import Net, copies


def test_every_trainable_tensor_once():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(6, 4)
            self.token = nn.Parameter(torch.zeros(1, 1, 4))
            self.gain = nn.Parameter(torch.tensor(0.1))
            self.empty = nn.Parameter(torch.zeros(0))
            self.frozen = nn.Parameter(torch.zeros(9), requires_grad=False)
            self.out = nn.Linear(4, 6, bias=False)
            self.out.weight = self.embed.weight  # tied

    net = Odd()
    posterior = deelbo.IsotropicPosterior(net)
    assert posterior.num_params == 24 + 4 + 1
    before = copies(net)
    with posterior.sample():
        assert torch.equal(net.frozen, before["frozen"])
        assert net.out.weight is net.embed.weight
        assert not torch.equal(net.gain, before["gain"])


def test_weights_of_half_precision_are_refused_with_a_remedy_unless_they_are_bfloat16_from_the_start():
    with pytest.raises(ValueError, match=r'"body.weight" is float16.*torch.autocast'):
        deelbo.IsotropicPosterior(Net(dtype=torch.float16))
    net = Net(dtype=torch.float32)
    posterior = deelbo.IsotropicPosterior(net)
    net.half()
    with pytest.raises(ValueError, match=r"autocast"), posterior.sample():
        pass
    net.bfloat16()
    with pytest.raises(RuntimeError, match=r'"body.weight" became bfloat16'), posterior.sample():
        pass


def test_nothing_to_learn_and_lazy_weights_are_refused():
    with pytest.raises(ValueError, match="nothing to learn"):
        deelbo.IsotropicPosterior(Net().requires_grad_(False))
    with pytest.raises(ValueError, match="run one batch"):
        deelbo.IsotropicPosterior(nn.LazyLinear(3))
    with pytest.raises(ValueError, match="positive"):
        deelbo.IsotropicPosterior(Net(), init_scale=0)


def test_changes_of_the_network_are_noticed():
    net = Net()
    posterior = deelbo.IsotropicPosterior(net)
    net.body.bias.requires_grad_(False)
    with pytest.raises(RuntimeError, match=r'"body.bias" was frozen'), posterior.sample():
        pass
    net.body.bias.requires_grad_(True)
    net.head = nn.Linear(7, 3, dtype=torch.float64)
    with pytest.raises(RuntimeError, match=r'"head.weight" was replaced'), posterior.sample():
        pass


def test_deterministic_parameters_are_learned_but_not_random():
    net = Net()
    posterior = deelbo.IsotropicPosterior(net, deterministic=["norm"])
    assert "norm.weight" not in posterior.means
    assert any(p is net.norm.weight for p in posterior.parameters())
    before = copies(net)
    with posterior.sample():
        assert torch.equal(net.norm.weight, before["norm.weight"])
        assert not torch.equal(net.body.weight, before["body.weight"])
    with pytest.raises(ValueError, match='"nrm" names no trainable'):
        deelbo.IsotropicPosterior(net, deterministic=["nrm"])


def test_weights_that_share_memory_are_refused():
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    net[1].weight.data = net[0].weight.data
    with pytest.raises(ValueError, match=r'"0.weight" and "1.weight" share memory'):
        deelbo.IsotropicPosterior(net)
    flat = torch.zeros(20)  # parts of one storage are fine
    net[1].weight.data, net[1].bias.data = flat[:16].view(4, 4), flat[16:]
    deelbo.IsotropicPosterior(net)


def test_weights_that_are_no_block_of_memory_are_refused_by_name():
    net = nn.Linear(3, 2)
    net.weight.data = torch.zeros(2, 1).expand(2, 3)
    with pytest.raises(ValueError, match='"weight": a weight of shape'):
        deelbo.IsotropicPosterior(net)
