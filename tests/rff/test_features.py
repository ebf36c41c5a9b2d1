import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deelbo.rff import RandomFourierFeatures

SCALES = st.floats(0.2, 5.0)


def rbf(x, lengthscale, outputscale):
    return outputscale**2 * torch.exp(-0.5 * torch.cdist(x / lengthscale, x / lengthscale).square())


@settings(deadline=None, max_examples=25)
@given(SCALES, SCALES, st.integers(1, 6), st.integers(0, 100))
def test_inner_products_are_the_kernel(lengthscale, outputscale, inputs, seed):
    x = torch.randn(12, inputs, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    errors = []
    for number in (500, 8000):
        layer = RandomFourierFeatures(inputs, number, lengthscale, outputscale, seed=seed, dtype=torch.float64)
        phi = layer(x)
        errors.append((phi @ phi.T - rbf(x, lengthscale, outputscale)).abs().mean().item() / outputscale**2)
    # The error of an average of R terms with a deviation of at most 1, four deviations wide.
    assert errors[0] < 4 / math.sqrt(500)
    assert errors[1] < 4 / math.sqrt(8000)


def test_error_falls_like_one_over_root_r():
    x = torch.randn(20, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    sizes = [2**k for k in range(7, 14)]

    def error(number):
        layers = [RandomFourierFeatures(3, number, 1.5, 2.0, seed=seed, dtype=torch.float64) for seed in range(20)]
        return sum(((p := layer(x)) @ p.T - rbf(x, 1.5, 2.0)).square().mean().item() for layer in layers) / 20

    slopes = [math.log2(error(b) / error(a)) / 2 for a, b in itertools.pairwise(sizes)]
    assert sum(slopes) / len(slopes) == pytest.approx(-0.5, abs=0.08)


def test_each_input_may_have_its_lengthscale():
    x = torch.randn(10, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    lengthscales = torch.tensor([0.5, 1.0, 4.0], dtype=torch.float64)
    layer = RandomFourierFeatures(3, 20000, lengthscales.tolist(), seed=0, dtype=torch.float64)
    phi = layer(x)
    torch.testing.assert_close(layer.lengthscale.detach(), lengthscales)
    assert (phi @ phi.T - rbf(x, lengthscales, 1.0)).abs().max() < 0.05


def test_scales_are_learned_and_features_are_not():
    layer = RandomFourierFeatures(2, 16, seed=0)
    assert {name for name, _ in layer.named_parameters()} == {"raw_lengthscale", "raw_outputscale"}
    assert {name for name, _ in layer.named_buffers()} == {"A", "b"}
    layer(torch.ones(3, 2)).sum().backward()
    assert layer.raw_lengthscale.grad.abs() > 0
    again = RandomFourierFeatures(2, 16, seed=5)
    again.load_state_dict(layer.state_dict())
    torch.testing.assert_close(again(torch.ones(1, 2)), layer(torch.ones(1, 2)))


@pytest.mark.parametrize(
    "arguments", [(0, 4), (2, 0), (2, 4, -1.0), (2, 4, [1.0, 2.0, 3.0]), (2, 4, [1.0, 0.0]), (2, 4, 1.0, 0.0)]
)
def test_wrong_arguments(arguments):
    with pytest.raises(ValueError, match=r"positive|lengthscales"):
        RandomFourierFeatures(*arguments)
