from collections import OrderedDict

import pytest
from torch import nn

import deelbo
from deelbo.priors import per_layer
from shared.cases import Net


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
