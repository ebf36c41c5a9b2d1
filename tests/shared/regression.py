"""Data that tests of random Fourier features share."""

import numpy as np


def toy(number=20):
    """The paper's regression demo."""
    random = np.random.RandomState(42)
    x = random.randn(number, 1)
    return x, (np.sin(3 * x) + 0.1 * random.randn(number, 1))[:, 0]
