import pytest
import torch

import deelbo
from deelbo.likelihoods import Categorical
from deelbo.training.predictions import predict
from shared.cases import Net


def test_samples_average_probabilities():
    net = Net()
    posterior = deelbo.IsotropicPosterior(net, init_scale=0.3)
    x = torch.randn(5, 5, dtype=torch.float64)
    expected = []
    for s in range(3):
        with torch.no_grad(), posterior.sample(seed=s):
            expected.append(net(x).softmax(1))
    found = predict(net, Categorical(), [x[:2], x[2:]], posterior, 3)
    torch.testing.assert_close(found.exp(), torch.stack(expected).mean(0))
    torch.testing.assert_close(predict(net, Categorical(), [x]), net(x).log_softmax(1).detach())
    assert net.training
    with pytest.raises(ValueError, match="no posterior"):
        predict(net, Categorical(), [x], None, 2)
