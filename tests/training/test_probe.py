"""The probe, against scikit-learn's regressions."""

import pytest
import torch

from deelbo.likelihoods import Bernoulli, Categorical, Gaussian
from deelbo.training.probe import FOLDS, STRENGTHS, _folds, _path, fit_probe


def data(number=40, size=8, classes=3):
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(number) % classes
    return torch.randn(number, size, generator=generator) + torch.randn(classes, size, generator=generator)[
        labels
    ], labels


def fit_layer(features, targets, likelihood, num_outputs, strength):
    return _path(features, targets, likelihood, num_outputs, strengths=[strength], bias=True)[0]


@pytest.mark.parametrize(("strength", "size"), [(0.1, 8), (3.0, 60)])
def test_a_layer_is_logistic_regression(strength, size):
    from sklearn.linear_model import LogisticRegression

    features, labels = data(size=size)
    layer = fit_layer(features, labels, Categorical(), 3, strength)
    expected = LogisticRegression(C=strength, tol=1e-10, max_iter=10_000).fit(features.double(), labels)
    weight = torch.as_tensor(expected.coef_)
    torch.testing.assert_close(layer.weight, weight, rtol=1e-3, atol=1e-4)
    own, other = layer.bias - layer.bias.mean(), torch.as_tensor(expected.intercept_)
    torch.testing.assert_close(own, other - other.mean(), rtol=1e-3, atol=1e-3)


def test_numbers_and_labels():
    from sklearn.linear_model import LogisticRegression, Ridge

    generator = torch.Generator().manual_seed(0)
    features = torch.randn(50, 5, generator=generator)
    targets = features[:, :1] - features[:, 1:2] + 0.1 * torch.randn(50, 1, generator=generator)
    likelihood = Gaussian()
    likelihood.fit(targets, 1)
    layer = fit_layer(features, targets, likelihood, 1, 2.0)
    standard = likelihood.linear_targets(targets, 1)
    torch.testing.assert_close(
        layer.weight[0],
        torch.as_tensor(Ridge(alpha=0.5).fit(features.double(), standard[:, 0]).coef_),
        rtol=1e-4,
        atol=1e-5,
    )
    labels = (features[:, :2] > 0).long()
    layer = fit_layer(features, labels, Bernoulli(), 2, 2.0)
    for k in range(2):
        alone = LogisticRegression(C=2.0, tol=1e-10, max_iter=10_000).fit(features.double(), labels[:, k])
        torch.testing.assert_close(layer.weight[k], torch.as_tensor(alone.coef_[0]), rtol=1e-3, atol=1e-3)


def test_the_strength_is_the_best_in_cross_validation():
    features, labels = data()
    probe = fit_probe(features, labels, Categorical(), 3)
    folds, likelihood = _folds(labels), Categorical()
    candidates = STRENGTHS / (features.double() - features.double().mean(0)).square().sum(1).mean()
    losses = []
    for strength in candidates.tolist():
        loss = 0.0
        for fold in range(FOLDS):
            rest, held = folds != fold, folds == fold
            layer = fit_layer(features[rest], labels[rest], likelihood, 3, strength)
            loss -= float(
                likelihood.log_likelihood(features[held].double() @ layer.weight.T + layer.bias, labels[held])
            )
        losses.append(loss / len(labels))
    assert probe.strength == pytest.approx(candidates[losses.index(min(losses))].item())
    assert probe.nll == pytest.approx(min(losses), rel=1e-3)


def test_folds_have_their_share_of_every_class():
    folds = _folds(torch.tensor([0] * 10 + [1] * 5))
    for fold in range(5):
        assert (folds[:10] == fold).sum() == 2
        assert (folds[10:] == fold).sum() == 1
