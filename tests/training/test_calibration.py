"""Temperatures and prediction sets from given outputs."""

import math
from dataclasses import replace

import pytest
import torch

from deelbo.likelihoods import Bernoulli, Categorical, Gaussian
from deelbo.likelihoods.categorical import IGNORED
from deelbo.training.calibration import (
    Calibration,
    held_out_calibration,
    outputs_of,
    parse_calibration,
    training_set_calibration,
)
from deelbo.training.start import Start


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
    found = training_set_calibration(logits, torch.tensor([0, 1]), Categorical(), Start(dimension=0.02), 2)
    assert (found.temperature, found.source) == (1.0, "training set")


def test_the_training_set_is_predicted_at_least_halfway_as_surely_as_the_frozen_features_are_right():
    classes = torch.arange(40) % 4
    outputs = 3.0 * torch.nn.functional.one_hot(classes)
    plain = float(outputs.softmax(1).amax(1).mean())  # 0.87
    careful = training_set_calibration(outputs, classes, Categorical(), Start(dimension=100), 40).temperature
    start = Start(dimension=100, frozen_features={"accuracy": 0.8})
    found = training_set_calibration(outputs, classes, Categorical(), start, 40)
    assert 1 < found.temperature < careful
    confidence = float((outputs / found.temperature).softmax(1).amax(1).mean())
    assert confidence == pytest.approx((33 / 42 + plain) / 2, abs=1e-3)  # of 40 are 32 right; one more of each kind
    surer = training_set_calibration(
        outputs, classes, Categorical(), replace(start, frozen_features={"accuracy": 1.0}), 40
    )
    assert surer.temperature == pytest.approx(1)  # never more certain than the network itself
    little = replace(start, frozen_features={"accuracy": 0.3})
    assert training_set_calibration(outputs, classes, Categorical(), little, 40).temperature == careful
    ignored = torch.cat([classes, torch.full((40,), IGNORED)])
    both = torch.cat([outputs, torch.zeros(40, 4)])  # as uncertain as can be, but of no class
    again = training_set_calibration(both, ignored, Categorical(), start, 40)
    assert again.temperature == pytest.approx(found.temperature, rel=1e-3)


def test_what_cannot_be_calibrated():
    nan, start = torch.full((2, 2), math.nan), Start(dimension=2)
    assert training_set_calibration(nan, torch.tensor([0, 1]), Categorical(), start, 2) == Calibration()
    assert training_set_calibration(torch.ones(2, 1), torch.ones(2, 1), Gaussian(), start, 2) == Calibration()
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
