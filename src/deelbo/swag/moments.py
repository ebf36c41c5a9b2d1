r"""SWAG (Maddox et al., 2019): a Gaussian fitted to the path of SGD.

From snapshots theta_1 ... theta_n of the weights it keeps the running mean, the running variance and the deviations of
the last K snapshots from the mean at their time. Welford's form is accurate also for variances far below the mean:

    delta = theta_n - mean;  mean += delta / n;  M2 += delta (theta_n - mean);  variance = M2 / n
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


class Moments:
    """Running mean, variance and last deviations of named weights; each call of `update` adds a snapshot.

    Args:
        weights: Weights by name; `update` reads their current values.
        rank: K, the number of deviations to keep.
        dtype: Data type of the stored deviations, that of the weights if None; torch.bfloat16 halves their memory
            (float16 would lose small ones).
        device: Device of the stored tensors, such as "cpu" for a network on a GPU; that of the weights if None.

    Raises:
        ValueError: If there are no weights or the rank is negative.

    Example:
        >>> import torch
        >>> from deelbo.swag import Moments
        >>> weight = torch.zeros(2)
        >>> moments = Moments({"weight": weight}, rank=2)
        >>> for value in (1.0, 2.0, 3.0):  # as if an optimizer had moved the weight
        ...     _ = weight.fill_(value)
        ...     moments.update()
        >>> moments.mean["weight"]
        tensor([2., 2.])
        >>> moments.variance()["weight"]
        tensor([0.6667, 0.6667])
        >>> moments.deviations()["weight"].shape
        torch.Size([2, 2])
    """

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        rank: int = 20,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        if not weights:
            raise ValueError("no weights to gather moments of: is the backbone frozen?")
        if rank < 0:
            raise ValueError(f"rank={rank} is negative, but it must be 0 or more")
        self.weights, self.rank, self.number = dict(weights), rank, 0
        self.mean: dict[str, Tensor] = {}
        self._squares: dict[str, Tensor] = {}
        self._rows: dict[str, Tensor] = {}  # deviations [K, ...]; a new one replaces the oldest
        for name, weight in self.weights.items():
            target = torch.device(device) if device is not None else weight.device
            self.mean[name] = torch.zeros_like(weight, device=target, requires_grad=False)
            self._squares[name] = torch.zeros_like(self.mean[name])
            self._rows[name] = torch.zeros(rank, *weight.shape, dtype=dtype or weight.dtype, device=target)

    @torch.no_grad()
    def update(self) -> None:
        """Add the current values of the weights as a snapshot."""
        self.number += 1
        for name, weight in self.weights.items():
            mean = self.mean[name]
            value = weight.detach().to(mean.device)
            delta = value - mean
            mean += delta / self.number
            rest = value - mean
            self._squares[name] += delta * rest
            if self.rank:
                self._rows[name][(self.number - 1) % self.rank].copy_(rest)

    def variance(self) -> dict[str, Tensor]:
        """Return the variance E[theta^2] - E[theta]^2 of each weight by name; it is never negative.

        Raises:
            ValueError: If there is no snapshot yet.
        """
        if not self.number:
            raise ValueError("no snapshot was taken yet: call update() first")
        return {name: squares / self.number for name, squares in self._squares.items()}

    def deviations(self) -> dict[str, Tensor]:
        """Return the last deviations of each weight by name, [at most K, ...], the newest first.

        The first snapshot has no deviation, because it is the mean at that time.
        """
        number = min(max(self.number - 1, 0), self.rank)
        order = [(self.number - 1 - back) % self.rank for back in range(number)]
        return {name: rows[order] for name, rows in self._rows.items()}

    def state_dict(self) -> dict[str, Tensor]:
        """Return mean, variance, deviations and number of snapshots as tensors, to be saved in a checkpoint."""
        rows = {name: rows[: self.number] for name, rows in self._rows.items()}  # only those that are filled already
        parts = {"mean": self.mean, "squares": self._squares, "rows": rows}
        state = {f"{part}.{name}": value for part, values in parts.items() for name, value in values.items()}
        return {**state, "number": torch.tensor(self.number)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore the moments from a `state_dict`, so that later updates continue from there."""
        for part, values in (("mean", self.mean), ("squares", self._squares), ("rows", self._rows)):
            for name, value in values.items():
                stored = state[f"{part}.{name}"]
                (value[: len(stored)] if part == "rows" else value).copy_(stored)
        self.number = int(state["number"])
