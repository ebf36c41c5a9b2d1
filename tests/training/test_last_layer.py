"""The classifier that is fitted to given features: beside scikit-learn's, and where the best margin is known."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import r2_score
from torch import nn

from deelbo.likelihoods import Categorical
from deelbo.likelihoods.categorical import IGNORED
from deelbo.training.last_layer import EXAMPLES, MARGIN, LastLayer, spread, usual_margin


@pytest.mark.parametrize("size", [0.1, 30.0])
def test_the_classifier_is_scikit_learns(size):
    """Whatever the size of the features, which the penalty takes out."""
    x, y = load_digits(return_X_y=True)
    features, labels = size * torch.tensor(x[:80]), torch.tensor(y[:80])
    layer = nn.Linear(64, 10, dtype=torch.float64)
    LastLayer(layer).fit(features, labels, Categorical())
    unit = (features / features.var(0, correction=0).sum().sqrt()).numpy()
    strength = MARGIN**2 * (80 / EXAMPLES) ** 0.5 * 9**2 / (10 * 80)
    theirs = LogisticRegression(C=strength, max_iter=10_000, tol=1e-10).fit(unit, labels)
    np.testing.assert_allclose(layer(features).detach().softmax(1).numpy(), theirs.predict_proba(unit), atol=1e-5)


@pytest.mark.parametrize("classes", [2, 3, 7])
@pytest.mark.parametrize("copies", [1, 20])
def test_the_penalty_is_one_on_the_margin_of_separated_classes(classes, copies):
    """At the corners of a simplex: the least log(1 + (C - 1) exp(-m)) + sqrt(60 / N) (m / 10)^2 / 2."""
    features, labels = torch.eye(classes, dtype=torch.float64).repeat(copies, 1), torch.arange(classes).repeat(copies)
    layer = nn.Linear(classes, classes, dtype=torch.float64)
    LastLayer(layer).fit(features, labels, Categorical())
    logits = layer(features[:classes]).detach()
    margins = torch.linspace(0, 20, 200_001, dtype=torch.float64)
    weight = (EXAMPLES / len(features)) ** 0.5
    losses = torch.log1p((classes - 1) * torch.exp(-margins)) + weight * (margins / MARGIN).square() / 2
    expected = margins[losses.argmin()].item()
    assert (logits[0, 0] - logits[0, 1]).item() == pytest.approx(expected, abs=2e-3)


def test_the_margin_is_smaller_where_pretrained_features_say_little():
    features, labels = torch.eye(2, dtype=torch.float64).repeat(30, 1), torch.arange(2).repeat(30)
    margins = []
    for information in (None, 0.4, 1.5, 0.1, 0.0, -2.0):
        layer = nn.Linear(2, 2, dtype=torch.float64)
        LastLayer(layer, usual_margin(information)).fit(features, labels, Categorical())
        logits = layer(features[:1]).detach()[0]
        margins.append((logits[0] - logits[1]).item())
    assert margins[2] > margins[0] == margins[1] > margins[3] > margins[4] == margins[5] > 0


def test_features_are_what_the_layer_gets():
    network = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    x = torch.randn(5, 3)
    with LastLayer(network[2]).features() as found:
        network(x[:3]), network(x[3:])
    torch.testing.assert_close(torch.cat(found), network[:2](x))
    assert not network[2]._forward_pre_hooks


def test_accuracy_leaves_out_what_is_ignored():
    layer = nn.Linear(2, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.eye(2))
        layer.bias.zero_()
    features = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    assert LastLayer(layer).accuracy(features, torch.tensor([0, 1, 1, IGNORED])) == pytest.approx(2 / 3)


def test_spread_is_one_minus_scikit_learns_share_of_explained_variance():
    """The class means as predictions of the features: R squared, weighted by the features' variances."""
    x, y = load_digits(return_X_y=True)
    labels = torch.cat([torch.tensor(y[:200]), torch.full((5,), IGNORED)])
    features = torch.cat([torch.tensor(x[:200]), torch.full((5, 64), 1e3)])
    means = np.stack([x[:200][y[:200] == label].mean(0) for label in y[:200]])
    expected = 1 - r2_score(x[:200], means, multioutput="variance_weighted")
    assert spread(features, labels) == pytest.approx(expected)
    corners = torch.eye(3).repeat(4, 1)
    assert spread(corners, torch.arange(3).repeat(4)) == pytest.approx(0)
    assert spread(corners, torch.arange(12) // 3) == pytest.approx(1)
