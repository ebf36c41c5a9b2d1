"""Seeds: everything random is a function of a seed and a step, and the caller's random numbers are left alone."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

GOLDEN = 0x9E3779B97F4A7C15  # 2**64 divided by the golden ratio, the increment of splitmix64
SEED_MASK = (1 << 63) - 1


def mix(*numbers: int) -> int:
    """Return a 63-bit seed hashed from integers (the finaliser of splitmix64, applied to each number in turn)."""
    state = 0
    for number in numbers:
        state = (state + number + GOLDEN) & 0xFFFFFFFFFFFFFFFF
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
        state ^= state >> 31
    return state & SEED_MASK


@contextmanager
def own_randomness(device: torch.device) -> Iterator[None]:
    """Save the states of the random generators, and restore them after the block."""
    state = random.getstate()
    numpy: Any = sys.modules.get("numpy")  # if NumPy was never imported, nothing draws from it
    numpy_state = numpy and numpy.random.get_state()
    devices = [device] if device.type == "cuda" else []
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        random.setstate(state)
        if numpy:
            numpy.random.set_state(numpy_state)


def seed_step(seed: int, step: int) -> None:
    """Make augmentation and dropout of a step functions of the seed and the step."""
    key = mix(seed, step)
    # torch.manual_seed() would queue a call for CUDA, together with a traceback, at every step.
    torch.default_generator.manual_seed(key)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(key)
    random.seed(key)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(key % 2**32)


def random_state() -> tuple[Any, ...]:
    """Return the state of the CPU's random generators, those of PyTorch, Python and NumPy."""
    numpy: Any = sys.modules.get("numpy")
    return torch.get_rng_state(), random.getstate(), numpy and numpy.random.get_state()


def set_random_state(state: tuple[Any, ...]) -> None:
    """Set the states that `random_state` returned, perhaps in another process."""
    torch.set_rng_state(state[0])
    random.setstate(state[1])
    numpy: Any = sys.modules.get("numpy")
    if numpy and state[2] is not None:
        numpy.random.set_state(state[2])
