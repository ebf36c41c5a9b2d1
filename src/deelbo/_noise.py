r"""Gaussian noise as a function of a key and a position; on the CPU by a hash, in half of PyTorch's time.

PyTorch draws on the CPU from the Mersenne Twister, number by number. Here the random bits are a hash of the position,
so that vectorised integer operations make them: the finaliser of MurmurHash3, which brings every bit of its input into
every bit of its output, with words of the key between its rounds. 16 bits choose one of 65,536 quantiles of N(0, 1),

    z_i = Phi^-1((i + 1/2) / 65536) / c ,    c so that the mean of z^2 is 1 .

The numbers are that coarse, and none is beyond 4.3; of a million weights, 14 should be. Tests of 10^7 of them cannot
tell them from PyTorch's. Few numbers, for which the operations are not worth their calls, are PyTorch's.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from deelbo._seeds import GOLDEN, SEED_MASK, mix
from deelbo._weight_passes import CPU_CHUNK, buffer, workspace

FEW = 1 << 15  # numbers below which PyTorch's generator is as fast
QUANTILES = 1 << 16
_GOLDEN = -1640531527  # 2**32 divided by the golden ratio, as int32 has it
# Shift, mask of the bits that it leaves, and multiplier of MurmurHash3's rounds. As tensors, which need no conversion.
_ROUNDS = [
    torch.tensor(row, dtype=torch.int32).unbind() for row in ((16, 0xFFFF, -2048144789), (13, 0x7FFFF, -1028477387))
]
_LAST, _MASK = torch.tensor(16, dtype=torch.int32), torch.tensor(0xFFFF, dtype=torch.int32)


def standard_normal(
    like: Tensor, seed: int, k: int, size: int | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    """Return N(0, I) noise for chunk k, in this thread's scratch buffer of slot 0.

    Every chunk has its own seed, so the noise depends neither on the number of threads nor on their order.

    Args:
        like: Chunk that gives size, dtype and device.
        seed: Seed for the whole draw.
        k: Number of the chunk.
        size: Size of the chunk, that of `like` if None.
        dtype: Data type of the noise, that of `like` if None.
    """
    out = buffer(like, dtype=dtype, size=size)
    if out.numel() < FEW or out.device.type != "cpu" or out.numel() > CPU_CHUNK:
        return out.normal_(generator=seeded_generator(out.device, seed, k))
    half = (out.numel() + 1) // 2
    index = buffer(out, 0, torch.int32, 2 * half)
    bits, shifted = out.view(torch.int32)[:half], index[:half]  # in memory that is overwritten next
    _hash(_spread_positions()[:half], mix(seed, k), bits, shifted)
    index.copy_(bits.view(torch.int16)).bitwise_and_(_MASK)
    return torch.index_select(_quantiles(out.dtype), 0, index[: out.numel()], out=out)


def rows_of_noise(rows: Tensor, width: int, seed: int, k: int, dtype: torch.dtype) -> Tensor:
    """Return N(0, I) noise for some rows of a matrix on the CPU, of each row a function of the key and its index.

    Args:
        rows: Indices of the rows.
        width: Numbers in a row.
        seed: Seed for the whole draw.
        k: Number of the matrix, another one than those of the draw's chunks.
        dtype: Data type of the noise.
    """
    half = (width + 1) // 2
    spread = (rows[:, None] * half + torch.arange(half)).int().mul_(_GOLDEN)
    bits = torch.empty_like(spread)
    _hash(spread, mix(seed, k), bits, torch.empty_like(spread))
    index = bits.view(torch.int16).int().bitwise_and_(_MASK)[:, :width]
    return torch.index_select(_quantiles(dtype), 0, index.flatten()).view(len(rows), width)


def seeded_generator(device: torch.device, seed: int, k: int) -> torch.Generator:
    """Return this thread's random generator on a device, with a seed of its own for chunk k of a draw."""
    generators = workspace("generators")
    generator = generators.get(device)
    if generator is None:
        generator = generators[device] = torch.Generator(device)
    return generator.manual_seed((seed + k * GOLDEN) & SEED_MASK)


def _hash(spread: Tensor, key: int, bits: Tensor, shifted: Tensor) -> None:
    """Write 32 random bits for each position.

    Args:
        spread: Different positions, times the golden ratio, int32.
        key: Chooses the function.
        bits: Where the bits go, int32.
        shifted: Scratch of the same size.
    """
    words = torch.tensor([mix(key, 1), mix(key, 2)]).int().unbind()  # the lowest 32 bits of each
    bits.copy_(spread)
    for word, (shift, mask, factor) in zip(words, _ROUNDS, strict=True):
        bits.add_(word)
        _xor_shifted(bits, shift, mask, shifted)
        bits.mul_(factor)
    _xor_shifted(bits, _LAST, _MASK, shifted)


def _xor_shifted(bits: Tensor, shift: Tensor, mask: Tensor, shifted: Tensor) -> None:
    torch.bitwise_right_shift(bits, shift, out=shifted)
    bits.bitwise_xor_(shifted.bitwise_and_(mask))  # the shift repeats the sign, which the mask takes away


@functools.cache
def _spread_positions() -> Tensor:
    with torch.inference_mode(False):
        return torch.arange(CPU_CHUNK // 2, dtype=torch.int32).mul_(_GOLDEN)


@functools.cache
def _quantiles(dtype: torch.dtype) -> Tensor:
    with torch.inference_mode(False), torch.no_grad():
        middle = (torch.arange(QUANTILES, dtype=torch.float64) + 0.5) / QUANTILES
        found = torch.special.ndtri(middle)
        return (found / found.square().mean().sqrt()).to(dtype)
