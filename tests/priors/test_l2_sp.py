import pytest

from deelbo.priors import l2_sp
from shared.cases import Net


def test_l2_sp_is_centred_at_a_copy_of_the_start():
    net = Net()
    prior = l2_sp(net, head="head")
    groups = prior.named_groups()
    assert groups["backbone"].quadratic()[0] == 0
    for p in net.parameters():
        p.data.add_(1)
    assert groups["backbone"].quadratic()[0] == pytest.approx(groups["backbone"].num_params)
    assert groups["head"].quadratic()[0] == pytest.approx(sum(p.square().sum().item() for p in net.head.parameters()))


def test_frozen_backbone_leaves_the_head():
    net = Net()
    net.body.requires_grad_(False)
    net.norm.requires_grad_(False)
    assert list(l2_sp(net, head="head").variances) == ["head"]
