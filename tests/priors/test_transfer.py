from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch.distributions import MultivariateNormal

import deelbo
from deelbo.priors import l2_sp, l2_zero, per_layer, ptyl
from shared.cases import Net


def backbone_vector(net):
    return torch.cat([p.detach().flatten() for name, p in net.named_parameters() if not name.startswith("head")])


def test_l2_sp_is_centred_at_a_copy_of_the_start():
    net = Net()
    prior = l2_sp(net, head="head")
    groups = prior.named_groups()
    assert groups["backbone"].quadratic()[0] == 0
    for p in net.parameters():
        p.data.add_(1)
    assert groups["backbone"].quadratic()[0] == pytest.approx(groups["backbone"].num_params)
    assert groups["head"].quadratic()[0] == pytest.approx(sum(p.square().sum().item() for p in net.head.parameters()))


def test_l2_zero_keeps_no_copy():
    net = Net()
    prior = l2_zero(net, head="head")
    assert prior.named_groups()["backbone"].quadratic()[0] == pytest.approx(float(backbone_vector(net).square().sum()))
    assert not list(prior.buffers())


def test_per_layer_groups():
    net = Net()
    prior = per_layer(net, head="head")
    assert list(prior.variances) == ["body", "norm", "head"]
    posterior = deelbo.IsotropicPosterior(net, init_scale=0.1)
    prior.update_variances(posterior)
    assert prior.variances["body"] == pytest.approx(0.01)
    prior = per_layer(net, head="head", start=False)
    prior.update_variances(posterior)
    assert prior.variances["norm"] == pytest.approx(0.01 + 0.5)  # weights 1, biases 0


def test_per_layer_with_a_layer_called_head():
    net = nn.Sequential(OrderedDict(body=nn.Linear(2, 2), head=nn.Linear(2, 2), fc=nn.Linear(2, 2)))
    prior = per_layer(net, head="fc")
    assert list(prior.variances) == ["body", "backbone head", "head"]
    assert sum(len(group.weights) for group in prior.named_groups().values()) == 6


@pytest.mark.parametrize("rank", [0, 1, 3, 5])
def test_ptyl_covariance(rank):
    net = Net()
    size = len(backbone_vector(net))
    mean, variance = torch.randn(size, dtype=torch.float64), torch.rand(size, dtype=torch.float64)
    variance[3] = -1e-9  # rounding of a running variance
    deviations = torch.randn(5, size, dtype=torch.float64)
    prior = ptyl(net, "head", mean, variance, deviations, rank=rank)
    q = deviations[:rank].T
    dense = 0.5 * (variance.clamp(min=0).diag() + q @ q.T / max(rank - 1, 1)) + 0.1 * torch.eye(size)
    prior.set_variances({"backbone": 0.7})
    expected = MultivariateNormal(mean, 0.7 * dense).log_prob(backbone_vector(net))
    assert prior.named_groups()["backbone"].log_prob() == pytest.approx(float(expected), rel=1e-8)


def test_ptyl_refuses_what_does_not_fit():
    net = Net()
    size = len(backbone_vector(net))
    good = {"mean": torch.zeros(size), "variance": torch.ones(size), "deviations": torch.ones(3, size)}
    with pytest.raises(ValueError, match="rank=5, but 3 deviations"):
        ptyl(net, "head", **good)
    with pytest.raises(ValueError, match=rf"deviations must be \[K, {size}\]"):
        ptyl(net, "head", **{**good, "deviations": torch.ones(size, 3)}, rank=3)
    with pytest.raises(ValueError, match=f"mean must be a vector of the {size} weights"):
        ptyl(net, "head", **{**good, "mean": torch.zeros(size + 1)}, rank=3)
    with pytest.raises(ValueError, match="variance of the source posterior has values that are not finite"):
        ptyl(net, "head", **{**good, "variance": torch.full((size,), torch.nan)}, rank=3)
    with pytest.raises(ValueError, match="positive and finite"):
        ptyl(net, "head", **{**good, "variance": torch.zeros(size)}, rank=3, diagonal=0)


def test_frozen_backbone_leaves_the_head():
    net = Net()
    net.body.requires_grad_(False)
    net.norm.requires_grad_(False)
    assert list(l2_sp(net, head="head").variances) == ["head"]
