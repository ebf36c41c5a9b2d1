"""The noise of the CPU: tests of its distribution and independence, which PyTorch's generator passes as well."""

import math

import pytest
import torch
from scipy import stats

from deelbo._noise import FEW, rows_of_noise, seeded_generator, standard_normal
from deelbo._seeds import mix
from deelbo._weight_passes import CPU_CHUNK

SIZE = CPU_CHUNK
BINS = 16
LIMIT = 4.5  # standard errors, beyond which one test in 150,000 would fail by chance


def hashed(key, k, size=SIZE):
    return standard_normal(torch.empty(size), key, k).double()  # a copy: the buffer is used again


def pytorchs(key, k, size=SIZE):
    return torch.empty(size).normal_(generator=seeded_generator(torch.device("cpu"), key, k)).double()


def rows(key, k, size=SIZE):
    return rows_of_noise(torch.arange(size // 256), 256, key, k, torch.float32).double().flatten()


@pytest.fixture(params=[hashed, pytorchs, rows])
def draw(request):
    return request.param


def in_errors(values, expected, variance):
    """Return how far the mean of values is from what it should be, in standard errors."""
    return abs(values.mean().item() - expected) / math.sqrt(variance / len(values))


def test_the_distribution_is_normal(draw):
    z = torch.cat([draw(mix(7), k) for k in range(32)])  # four million
    assert in_errors(z, 0, 1) < LIMIT
    assert in_errors(z.square(), 1, 2) < LIMIT
    assert in_errors(z**3, 0, 15) < LIMIT
    assert in_errors(z**4, 3, 96) < LIMIT
    assert stats.kstest(z.numpy(), "norm").pvalue > 1e-4


def test_neighbours_are_independent(draw):
    """By correlations of numbers and of their squares, and by counts in the cells of a plane."""
    z = torch.cat([draw(mix(8), k) for k in range(16)])
    for lag in (1, 2, 3, 64, SIZE // 2, SIZE):
        x, y = z[:-lag], z[lag:]
        assert in_errors(x * y, 0, 1) < LIMIT
        assert in_errors((x.square() - 1) * (y.square() - 1), 0, 4) < LIMIT
        cells = [(torch.special.ndtr(part) * BINS).long().clamp(max=BINS - 1) for part in (x, y)]
        counts = torch.bincount(cells[0] * BINS + cells[1], minlength=BINS**2)
        assert stats.chisquare(counts.numpy()).pvalue > 1e-6


@pytest.mark.parametrize("other", [(9, 1), (10, 0)], ids=["another chunk", "another key"])
def test_draws_are_independent(draw, other):
    found = [torch.cat([draw(mix(key), k + 1000 * i) for i in range(8)]) for key, k in ((9, 0), other)]
    assert in_errors(found[0] * found[1], 0, 1) < LIMIT
    reverse = found[1].flip(0)
    assert in_errors(found[0] * reverse, 0, 1) < LIMIT


def test_the_mean_of_many_draws_of_one_weight_vanishes():
    draws = torch.stack([hashed(mix(3, i), 0, FEW) for i in range(400)])
    means, squares = draws.mean(0) * math.sqrt(400), draws.square().mean(0)
    assert means.abs().max() < 6
    assert stats.kstest(means.numpy(), "norm").pvalue > 1e-4
    assert (squares - 1).abs().max() < 6 * math.sqrt(2 / 400)


@pytest.mark.parametrize("size", [FEW - 1, FEW, FEW + 1, SIZE])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_is_a_function_of_key_and_chunk(size, dtype):
    like = torch.empty(size, dtype=dtype)
    first = standard_normal(like, 1, 2).clone()
    assert (first.shape, first.dtype) == (like.shape, dtype)
    standard_normal(like, 5, 5)
    assert torch.equal(standard_normal(like, 1, 2), first)
    assert not torch.equal(standard_normal(like, 1, 3), first)
    assert not torch.equal(standard_normal(like, 2, 2), first)
    with torch.inference_mode():
        assert torch.equal(standard_normal(like, 1, 2), first)


@pytest.mark.parametrize("width", [1, 6, 7])
def test_rows_do_not_depend_on_the_others(width):
    every = rows_of_noise(torch.arange(50), width, 4, -1, torch.float64)
    some = torch.tensor([3, 49, 7])
    assert torch.equal(rows_of_noise(some, width, 4, -1, torch.float64), every[some])
    assert len(every.unique(dim=0)) == 50
    assert not torch.equal(rows_of_noise(some, width, 5, -1, torch.float64), every[some])
