"""Random Fourier features: cosines whose inner products approximate an RBF kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class RandomFourierFeatures(nn.Module):
    """phi(x) = outputscale * sqrt(2/R) * cos(A^T x / lengthscale + b), `eq:phi` of the paper.

    A ~ N(0, 1) and b ~ Uniform(0, 2 pi) are drawn once and fixed; lengthscale and outputscale are learned. The inner
    product phi(x)^T phi(x') is an unbiased estimate of the RBF kernel
    outputscale^2 exp(-|x - x'|^2 / (2 lengthscale^2)), with an error proportional to 1/sqrt(R).

    Args:
        in_features: Number of inputs, the size of x.
        num_features: R, the number of random features.
        lengthscale: Initial lengthscale: one number, or one for each input (then each input learns its own).
        outputscale: Initial outputscale.
        seed: Seed for A and b; PyTorch's global generator draws them if None.
        dtype: Data type of parameters and buffers; PyTorch's default if None.
        device: Device of parameters and buffers; PyTorch's default if None.

    Raises:
        ValueError: If a size or a scale is not positive, or the number of lengthscales is not that of the inputs.

    Example:
        >>> import torch
        >>> from deelbo.rff import RandomFourierFeatures
        >>> features = RandomFourierFeatures(in_features=2, num_features=10_000, lengthscale=1.0, seed=0)
        >>> x = torch.tensor([[0.0, 0.0], [1.0, 0.0]])
        >>> phi = features(x)
        >>> phi.shape
        torch.Size([2, 10000])
        >>> kernel = phi @ phi.T  # about exp(-1/2) = 0.61 between the two points
        >>> print(f"{kernel[0, 1].item():.1f}")
        0.6
    """

    A: Tensor
    b: Tensor

    def __init__(
        self,
        in_features: int,
        num_features: int,
        lengthscale: float | Sequence[float] = 1.0,
        outputscale: float = 1.0,
        *,
        seed: int | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        start = torch.as_tensor(lengthscale, dtype=torch.float64)
        if in_features < 1 or num_features < 1:
            raise ValueError(f"in_features={in_features} and num_features={num_features} must be positive")
        if start.ndim and start.shape != (in_features,):
            raise ValueError(
                f"{start.numel()} lengthscales for {in_features} inputs: give one number, or one for each input"
            )
        if not (start > 0).all() or not outputscale > 0:
            raise ValueError(f"lengthscale={lengthscale} and outputscale={outputscale} must be positive")
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        dtype = dtype or torch.get_default_dtype()
        A = torch.randn(in_features, num_features, generator=generator, dtype=torch.float64)
        b = torch.rand(num_features, generator=generator, dtype=torch.float64) * 2 * math.pi
        self.register_buffer("A", A.to(device, dtype))
        self.register_buffer("b", b.to(device, dtype))
        self.raw_lengthscale = nn.Parameter(_inverse_softplus(start).to(device, dtype))
        self.raw_outputscale = nn.Parameter(_inverse_softplus(torch.tensor(outputscale).double()).to(device, dtype))

    @property
    def lengthscale(self) -> Tensor:
        """Current lengthscale, positive: one number, or one for each input."""
        return F.softplus(self.raw_lengthscale)

    @property
    def outputscale(self) -> Tensor:
        """Current outputscale, positive: the prior standard deviation of the function."""
        return F.softplus(self.raw_outputscale)

    def forward(self, x: Tensor) -> Tensor:
        """Return the features phi(x), [..., R], of inputs x, [..., in_features]."""
        return fourier_features(x, self.A, self.b, self.lengthscale, self.outputscale)

    def extra_repr(self) -> str:
        """Return the sizes and the outputscale, for `repr`."""
        in_features, num_features = self.A.shape
        return f"{in_features}, {num_features}, outputscale={self.outputscale.item():.3g}"


def fourier_features(x: Tensor, A: Tensor, b: Tensor, lengthscale: Tensor, outputscale: Tensor) -> Tensor:
    """Return outputscale * sqrt(2/R) * cos(A^T x / lengthscale + b), [..., R] (`eq:phi`)."""
    return outputscale * math.sqrt(2 / A.shape[1]) * torch.cos((x / lengthscale) @ A + b)


def _inverse_softplus(value: Tensor) -> Tensor:
    return value + torch.log(-torch.expm1(-value))
