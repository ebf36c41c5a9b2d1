import pytest
import torch
from sklearn.metrics import balanced_accuracy_score, log_loss

import deelbo
from deelbo.training.evaluation import metrics, probabilities
from shared.cases import Net


def test_metrics_agree_with_scikit_learn():
    p = torch.randn(200, 4, dtype=torch.float64).softmax(1)
    y = torch.randint(3, (200,))  # class 3 never occurs
    result = metrics(p, y)
    assert result["accuracy"] == pytest.approx((p.argmax(1) == y).double().mean().item())
    assert result["balanced_accuracy"] == pytest.approx(_balanced(p, y), rel=1e-6)
    assert result["nll"] == pytest.approx(log_loss(y, p, labels=[0, 1, 2, 3]), rel=1e-6)
    assert result["ece"] == pytest.approx(_ece(p, y), rel=1e-4)


def _balanced(p, y):
    with pytest.warns(UserWarning, match="y_pred"):
        return balanced_accuracy_score(y, p.argmax(1))


def _ece(p, y, bins=15):
    confidence, predicted = p.max(1)
    right = (predicted == y).double()
    place = (confidence * bins).ceil().long().clamp(min=1) - 1
    total = 0.0
    for b in range(bins):
        inside = place == b
        if inside.any():
            total += float(inside.double().mean() * (right[inside].mean() - confidence[inside].mean()).abs())
    return total


def test_samples_average_probabilities():
    net = Net()
    posterior = deelbo.IsotropicPosterior(net, init_scale=0.3)
    x = torch.randn(5, 5, dtype=torch.float64)
    expected = []
    for s in range(3):
        with torch.no_grad(), posterior.sample(seed=s):
            expected.append(net(x).softmax(1))
    torch.testing.assert_close(probabilities(net, [x[:2], x[2:]], posterior, 3), torch.stack(expected).mean(0))
    torch.testing.assert_close(probabilities(net, [x]), net(x).softmax(1).detach())
    assert net.training
    with pytest.raises(ValueError, match="no posterior"):
        probabilities(net, [x], None, 2)
