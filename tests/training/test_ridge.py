"""Ridge regression with leave-one-out predictions, against fits without each example."""

import pytest
import torch
import torch.nn.functional as F

from deelbo.likelihoods import Bernoulli, Categorical, Gaussian
from deelbo.training import ridge as module
from deelbo.training.ridge import effective_dimension, fit_ridge


def data(number=30, size=6, classes=3):
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(number) % classes
    shift = torch.randn(classes, size, generator=generator)
    return torch.randn(number, size, generator=generator) + shift[labels], labels


@pytest.mark.parametrize("size", [6, 50])
def test_left_out_predictions_are_those_of_fits_without_the_example(monkeypatch, size):
    """Each example is predicted by scikit-learn's ridge regression on all others, at the same strength."""
    from sklearn.linear_model import Ridge

    features, labels = data(size=size)
    centred = (features - features.mean(0)).double()
    eigenvalues = torch.linalg.svdvals(centred).square()
    mean = eigenvalues[eigenvalues > 1e-14 * eigenvalues.max()].mean().item()
    monkeypatch.setattr(module, "STRENGTHS", torch.tensor([0.1], dtype=torch.float64))
    found = fit_ridge(features, labels, Categorical(), 3)
    targets = F.one_hot(labels, 3).double() - 1 / 3
    left_out = torch.stack(
        [
            torch.as_tensor(
                Ridge(alpha=0.1 * mean)
                .fit(features[torch.arange(30) != i].double(), targets[torch.arange(30) != i])
                .predict(features[i : i + 1].double())[0]
            )
            for i in range(30)
        ]
    )
    # scikit-learn centres without the example, the formula with it; both are exact for their own intercept.
    factor = (found.left_out * left_out).sum() / left_out.square().sum()
    torch.testing.assert_close(found.left_out, factor * left_out, rtol=1e-6, atol=1e-8)
    whole = Ridge(alpha=0.1 * mean).fit(features.double(), targets)
    torch.testing.assert_close(found.weight, factor * torch.as_tensor(whole.coef_), rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(found.bias, factor * torch.as_tensor(whole.intercept_), rtol=1e-6, atol=1e-8)


def test_strength_and_factor_have_the_best_left_out_likelihood():
    features, labels = data()
    found = fit_ridge(features, labels, Categorical(), 3)
    assert found.nll == pytest.approx(float(F.cross_entropy(found.left_out, labels)), rel=1e-12)
    for factor in (0.9, 1.1):
        assert float(F.cross_entropy(factor * found.left_out, labels)) > found.nll
    assert found.nll < 1.0986  # better than knowing nothing


def test_numbers_have_no_factor():
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(40, 4, generator=generator)
    targets = (features @ torch.tensor([1.0, 2.0, 0.0, -1.0]) + 5)[:, None]
    likelihood = Gaussian()
    likelihood.fit(targets, 1)
    found = fit_ridge(features, targets, likelihood, 1)
    predicted = likelihood.location + likelihood.spread * (features.double() @ found.weight.T + found.bias)
    torch.testing.assert_close(predicted, targets.double(), rtol=1e-3, atol=1e-2)


def test_several_labels():
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(60, 4, generator=generator)
    labels = (features[:, :2] > 0).long()
    found = fit_ridge(features, labels, Bernoulli(), 2)
    assert float(((found.left_out > 0).long() == labels).double().mean()) > 0.9


def test_features_that_say_nothing_give_the_shares_of_the_classes():
    labels = torch.tensor([0, 0, 0, 1] * 5)
    found = fit_ridge(torch.ones(20, 3), labels, Categorical(), 2)
    assert found.weight.abs().max() == 0
    assert found.left_out.argmax(1).tolist() == [0] * 20


def test_the_effective_dimension_is_that_of_the_population():
    """Isotropic Gaussian features have as many dimensions as they have, however few rows there are."""
    generator = torch.Generator().manual_seed(0)
    for number, dimension in ((20, 50), (32, 384), (60, 100), (1000, 20)):
        found = []
        for _ in range(20):
            features = torch.randn(number, dimension, generator=generator, dtype=torch.float64)
            eigenvalues = torch.linalg.svdvals(features - features.mean(0)).square()
            found.append(effective_dimension(eigenvalues, number))
        assert sum(found) / len(found) == pytest.approx(dimension, rel=0.15)
    ridge = fit_ridge(features + 100, torch.arange(1000) % 2, Categorical(), 2, bias=False)
    assert ridge.dimension == pytest.approx(20, rel=0.1)  # features are centred for it
