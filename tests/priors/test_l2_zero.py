import pytest

from deelbo.priors import l2_zero
from shared.cases import Net, backbone_vector


def test_l2_zero_keeps_no_copy():
    net = Net()
    prior = l2_zero(net, head="head")
    assert prior.named_groups()["backbone"].quadratic()[0] == pytest.approx(float(backbone_vector(net).square().sum()))
    assert not list(prior.buffers())
