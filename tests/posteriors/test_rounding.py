import math

import pytest
import torch

from deelbo.posteriors.rounding import stochastic_round_

VALUES = [1.003, -1.003, 0.0512345, -3.3e-5, 2.7e-39, 123456.7, 1.9999999, -0.9990001]


def neighbours(value):
    """Return the bfloat16 numbers below and above a number, by an independent formula in float64."""
    exponent = max(math.floor(math.log2(abs(value))), -126)
    spacing = 2.0 ** (exponent - 7)
    return math.floor(value / spacing) * spacing, math.ceil(value / spacing) * spacing


@pytest.mark.parametrize("value", VALUES)
def test_the_expectation_is_the_value_and_only_the_neighbours_occur(value):
    number = 400_000
    values = torch.full((number,), value)
    exact = float(values[0].double())
    low, high = neighbours(exact)
    rounded = stochastic_round_(values, torch.Generator().manual_seed(1)).double()
    assert set(rounded.unique().tolist()) == {low, high}
    share = (exact - low) / (high - low)
    deviation = math.sqrt(share * (1 - share) / number)
    assert abs(float((rounded == high).double().mean()) - share) < 5 * deviation
    assert torch.equal(rounded.bfloat16().double(), rounded)


def test_what_bfloat16_has_stays_as_it_is():
    values = torch.cat([torch.randn(1000).bfloat16().float(), torch.tensor([0.0, -0.0, math.inf, -math.inf])])
    assert torch.equal(stochastic_round_(values.clone(), torch.Generator()), values)
    assert stochastic_round_(torch.tensor([math.nan]), torch.Generator()).isnan().all()


def test_numbers_are_rounded_independently_and_repeatably():
    """Four of them share one random integer of 64 bits."""
    number = 40_000
    values = torch.full((number + 3,), 1 + 2**-8)  # in the middle
    ups = stochastic_round_(values.clone(), torch.Generator().manual_seed(2))
    assert torch.equal(ups, stochastic_round_(values.clone(), torch.Generator().manual_seed(2)))
    signs = (ups > 1).double() * 2 - 1
    for lag in range(1, 9):
        assert abs(float((signs[lag:] * signs[:-lag]).mean())) < 5 / math.sqrt(number)
