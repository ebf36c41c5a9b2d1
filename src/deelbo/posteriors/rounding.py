"""Stochastic rounding to bfloat16: up or down at random, so that the expectation is the number that was rounded.

Weights in bfloat16 have 8 significant bits: the neighbours of 0.05 are 2.4e-4 away. Noise of scale 1e-4 would mostly
vanish in rounding to the nearest; rounded at random it is kept on average, at every weight and over all weights.
"""

from __future__ import annotations

import torch
from torch import Tensor

_LOW_BITS = 16  # bits of a float32 number that bfloat16 does not have


def stochastic_round_(values: Tensor, generator: torch.Generator) -> Tensor:
    """Round float32 numbers in place to numbers that bfloat16 has, with E[rounded] = value.

    A bfloat16 number is the first half of a float32 number's 32 bits, so x lies between two of them, low and high, at
    (x - low) / (high - low) = r / 2^16, where r is the integer in its last 16 bits. A uniform integer below 2^16, added
    to these bits, carries with probability r / 2^16 exactly; then they are set to zero.

    Args:
        values: A flat float32 tensor.
        generator: Source of the random bits, on the device of the values.

    Returns:
        The same tensor.

    Example:
        >>> import torch
        >>> from deelbo.posteriors.rounding import stochastic_round_
        >>> values = torch.full((10_000,), 1 + 2**-9)  # a quarter of the way from 1 to the next bfloat16 number
        >>> rounded = stochastic_round_(values, torch.Generator().manual_seed(0))
        >>> rounded.unique().tolist()
        [1.0, 1.0078125]
        >>> print(f"{(rounded > 1).double().mean():.2f}")
        0.25
    """
    number = values.numel()
    # Four integers of 16 bits from each of 64: drawing is what takes the time.
    random = torch.empty(-(-number // 4), dtype=torch.int64, device=values.device)
    random.random_(-(2**63), None, generator=generator)
    bits = values.view(torch.int32)
    bits.add_(random.view(torch.int16)[:number]).add_(1 << (_LOW_BITS - 1))  # from 0, because int16 starts at -2^15
    bits.bitwise_and_(-1 << _LOW_BITS)
    return values
