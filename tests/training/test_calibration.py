"""Temperatures and prediction sets from given outputs."""

import math

import pytest
import torch

from deelbo.likelihoods import Bernoulli, Categorical, Gaussian
from deelbo.training.calibration import (
    Calibration,
    held_out_calibration,
    outputs_of,
    parse_calibration,
    training_set_calibration,
)


def test_what_users_write():
    assert [parse_calibration(text) for text in ("none", "free", "folds", "folds=3")] == [None, 0, 5, 3]
    for wrong in ("", "fold=3", "folds=1", "folds=x", "folds=-2", "free=2"):
        with pytest.raises(ValueError, match="calibrate="):
            parse_calibration(wrong)


def test_the_limit_is_the_quantile_of_conformal_prediction():
    calibration = Calibration(scores=torch.arange(1, 20).flip(0).double()[:, None])  # 1 to 19
    assert calibration.limits(0.1) == [18]  # ceil(0.9 * 20)
    assert calibration.limits(0.5) == [10]
    assert calibration.limits(0.04) == [math.inf]  # 19 examples say nothing about one in 25
    for alpha in (0, 1, -1):
        with pytest.raises(ValueError, match="alpha="):
            calibration.limits(alpha)
    with pytest.raises(ValueError, match="not seen"):
        Calibration().limits(0.1)


def test_coverage_of_sets_and_intervals():
    """Split-conformal coverage is 1 - alpha on average over calibration sets, here of 99 examples."""
    generator = torch.Generator().manual_seed(0)
    covered: dict[str, list[float]] = {"classes": [], "numbers": []}
    for _ in range(20):
        logits = 2 * torch.randn(1099, 4, generator=generator)
        classes = (0.7 * logits).softmax(1).multinomial(1, generator=generator)[:, 0]
        numbers = logits[:, :1] + 0.3 * torch.randn(1099, 1, generator=generator)
        for name, likelihood, outputs, targets in (
            ("classes", Categorical(), logits, classes),
            ("numbers", Gaussian(), logits[:, :1], numbers),
        ):
            calibration = held_out_calibration(outputs[:99], targets[:99], likelihood)
            prediction = likelihood.tempered(
                likelihood.prediction(likelihood.averageable(outputs[99:])), calibration.temperature
            )
            sets = likelihood.sets(likelihood.shown(prediction), calibration.limits(0.1))
            if name == "classes":
                inside = sets.gather(1, targets[99:, None])
            else:
                inside = (sets[..., 0] <= targets[99:]) & (targets[99:] <= sets[..., 1])
            covered[name].append(float(inside.double().mean()))
    for shares in covered.values():
        assert sum(shares) / len(shares) == pytest.approx(0.9, abs=0.02)


def test_a_noise_that_is_too_small_is_widened():
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(2000, 2, generator=generator)
    targets = outputs + 0.5 * torch.randn(2000, 2, generator=generator)
    calibration = held_out_calibration(outputs, targets, Gaussian(noise=0.1))
    assert calibration.temperature == pytest.approx(5, rel=0.05)
    assert calibration.scores.shape == (2000, 2)


def test_the_training_set_never_makes_more_certain():
    logits = torch.tensor([[0.1, 0.0], [0.0, 0.1]])
    found = training_set_calibration(logits, torch.tensor([0, 1]), Categorical(), pull=0.01)
    assert (found.temperature, found.source) == (1.0, "training set")


def test_what_cannot_be_calibrated():
    nan = torch.full((2, 2), math.nan)
    assert training_set_calibration(nan, torch.tensor([0, 1]), Categorical(), 1.0) == Calibration()
    assert training_set_calibration(torch.ones(2, 1), torch.ones(2, 1), Gaussian(), 1.0) == Calibration()
    with pytest.raises(ValueError, match="finite"):
        held_out_calibration(nan, torch.tensor([0, 1]), Categorical())
    found = held_out_calibration(torch.randn(20, 2), torch.randint(2, (20, 2)), Bernoulli())
    assert found.scores is None  # several labels have no sets


def test_outputs_are_those_of_eval_mode_and_at_most_so_many():
    network = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Linear(3, 2))
    network.train()
    x, y = torch.randn(50, 3), torch.arange(50)
    dataset = torch.utils.data.TensorDataset(x, y)
    outputs, targets = outputs_of(network, dataset, 8, torch.no_grad, most=20)
    assert len(targets) == 20
    assert network.training
    torch.testing.assert_close(outputs, network[1](x[targets]).detach())
    assert outputs_of(network, dataset, 8, torch.no_grad)[1].tolist() == list(range(50))


def test_how_it_is_described():
    assert Calibration().describe() == "1 (not calibrated)"
    assert Calibration(2.456, "folds", 5).describe() == "2.46 (from 5 folds)"
