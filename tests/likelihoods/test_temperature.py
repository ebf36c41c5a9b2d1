"""The factor of logits: against slow searches, and where the truth is known."""

import math

import pytest
import torch
import torch.nn.functional as F

from deelbo.likelihoods import Bernoulli, Categorical, Gaussian
from deelbo.likelihoods.temperature import held_out_factor, training_set_factor
from deelbo.metrics import measure
from deelbo.training.calibration import free_factor
from deelbo.training.ridge import fit_ridge
from deelbo.training.start import Start

GRID = torch.linspace(-4, 3, 7001, dtype=torch.float64).exp()


def examples(number=60, classes=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(number, classes, generator=generator, dtype=torch.float64)
    return logits, torch.distributions.Categorical(logits=logits / 2).probs.multinomial(1, generator=generator)[:, 0]


def test_held_out_factor_against_a_grid():
    logits, targets = examples()
    losses = torch.stack([F.cross_entropy(s * logits, targets) for s in GRID])
    assert held_out_factor(logits, targets, Categorical()) == pytest.approx(float(GRID[losses.argmin()]), rel=0.01)


def test_held_out_factor_of_logits_that_are_twice_too_large():
    logits, targets = examples(20_000)
    assert held_out_factor(logits, targets, Categorical()) == pytest.approx(0.5, rel=0.05)


@pytest.mark.parametrize("pull", [0.05, 1.0, 3.0])
def test_training_set_factor_against_a_grid(pull):
    logits, targets = examples()
    losses = torch.stack([F.cross_entropy(s * logits, targets) + pull * s**2 / 2 for s in GRID])
    found = training_set_factor(logits, targets, Categorical(), pull)
    assert found == pytest.approx(float(GRID[losses.argmin()]), rel=0.01)


def test_training_set_factor_of_separated_classes():
    """All margins are m, so that m e^{-sm} (C-1) / (1 + (C-1) e^{-sm}) = pull s."""
    margin, classes, pull = 10.0, 5, 0.3
    targets = torch.arange(20) % classes
    s = training_set_factor(margin * F.one_hot(targets, classes).double(), targets, Categorical(), pull)
    others = (classes - 1) * math.exp(-s * margin)
    assert margin * others / (1 + others) == pytest.approx(pull * s, rel=0.05)


def test_several_labels_are_as_many_decisions():
    """L labels with the same logits have the same factor as one label."""
    generator = torch.Generator().manual_seed(0)
    logits = 5 * torch.randn(50, 1, generator=generator)
    labels = (logits + torch.randn(50, 1, generator=generator) > 0).long()
    factors = [training_set_factor(logits.expand(-1, n), labels.expand(-1, n), Bernoulli(), 0.5) for n in (1, 4)]
    assert factors[0] == pytest.approx(factors[1])
    two = torch.cat([torch.zeros(50, 1), logits], 1)  # one label is two classes
    assert training_set_factor(two, labels[:, 0], Categorical(), 0.5) == pytest.approx(factors[0])


def test_tempered_predictions_are_those_of_divided_outputs():
    generator = torch.Generator().manual_seed(0)
    outputs = 4 * torch.randn(7, 3, generator=generator, dtype=torch.float64)
    for likelihood in (Categorical(), Bernoulli()):
        plain = likelihood.prediction(likelihood.averageable(outputs))
        cooled = likelihood.prediction(likelihood.averageable(outputs / 2.5))
        torch.testing.assert_close(likelihood.tempered(plain, 2.5), cooled)
        assert likelihood.tempered(plain, 1.0) is plain
    certain = torch.tensor([[40.0, -800.0]])  # sigmoid(40) is 1 in float64, and exp(-800) is 0
    for likelihood, divided in ((Bernoulli(), torch.sigmoid), (Categorical(), lambda logits: logits.softmax(1))):
        cooled = likelihood.tempered(likelihood.prediction(likelihood.averageable(certain)), 400.0)
        torch.testing.assert_close(likelihood.shown(cooled), divided(certain.double() / 400))
    gaussian = Gaussian(noise=0.5)
    prediction = gaussian.prediction(gaussian.averageable(outputs[:, :1]))
    wider = gaussian.tempered(prediction, 3.0)
    torch.testing.assert_close(wider.std, torch.full((7, 1), 1.5, dtype=torch.float64), rtol=1e-6, atol=0)
    assert wider.mean is prediction.mean


def known_truth(number, dimension, seed, steps=300):
    """Train logistic regression on Gaussian features of a known model; return features, logits and labels of both."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(number + 4000, dimension, generator=generator, dtype=torch.float64)
    truth = 3 * torch.randn(dimension, 3, generator=generator, dtype=torch.float64) / dimension**0.5
    targets = (features @ truth).softmax(1).multinomial(1, generator=generator)[:, 0]
    weights = torch.zeros(dimension, 3, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([weights], lr=1.0, momentum=0.9)
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(features[:number] @ weights, targets[:number]).backward()
        optimizer.step()
    logits = features @ weights.detach()
    return [(part[:number], part[number:]) for part in (features, logits, targets)]


@pytest.mark.parametrize(("number", "dimension"), [(400, 20), (100, 100), (100, 400), (400, 100), (30, 50)])
def test_where_the_truth_is_known(number, dimension):
    """The rule was measured on pretrained networks; here s* is on the right side, and recovers a part."""
    likelihood, lost, recovered = Categorical(), 0.0, 0.0
    for seed in range(3):
        (features, _), (trained, tested), (labels, truth) = known_truth(number, dimension, seed)
        ridge = fit_ridge(features, labels, likelihood, 3)
        left_out = measure(likelihood, ridge.left_out.log_softmax(1), labels)
        guessing = float(torch.special.entr(labels.bincount() / number).sum())
        start = Start(dimension=ridge.dimension, guessing=guessing, frozen_features=left_out)
        free = free_factor(trained, labels, likelihood, start, number)
        best = held_out_factor(tested, truth, likelihood)
        assert best < free < 1
        as_is, calibrated, least = (float(likelihood(s * tested, truth)) for s in (1.0, free, best))
        lost, recovered = lost + as_is - least, recovered + as_is - calibrated
    assert recovered > 0.25 * lost


@pytest.mark.parametrize(
    ("number", "dimension", "distance"), [(40, 10, 2), (400, 100, 2), (100, 100, 1), (100, 100, 3)]
)
def test_the_calibrated_margin_is_that_of_the_true_model(number, dimension, distance):
    """Two Gaussian classes, a linear discriminant of their sample means: docs/calibration.md has the derivation."""
    generator = torch.Generator().manual_seed(0)
    margins, plain = [], []
    for _ in range(20):
        sign = 2.0 * (torch.arange(number + 5000, dtype=torch.float64) % 2) - 1
        features = torch.randn(len(sign), dimension, generator=generator, dtype=torch.float64)
        features[:, 0] += sign * distance / 2
        x, y = features[:number], sign[:number]
        means = x[y > 0].mean(0), x[y < 0].mean(0)
        log_odds = (features - (means[0] + means[1]) / 2) @ (means[0] - means[1])
        logits = torch.stack([log_odds, torch.zeros_like(log_odds)], 1)
        best = held_out_factor(logits[number:], (sign[number:] < 0).long(), Categorical())
        plain.append(float((log_odds[:number] * y).mean()))
        margins.append(best * plain[-1])
    assert torch.tensor(plain).mean() == pytest.approx(distance**2 / 2 + 2 * dimension / number, rel=0.15)
    assert torch.tensor(margins).mean() == pytest.approx(distance**2 / 2, rel=0.1)
