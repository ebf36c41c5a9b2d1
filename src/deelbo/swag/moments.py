r"""SWAG (Maddox et al., 2019): a Gaussian fitted to the path of SGD.

Of snapshots theta_1 ... theta_n it keeps the running mean, the running variance and the last K deviations from the mean
at their time, in Welford's form, which does not lose digits where the variance is small against the mean:

    delta = theta_n - mean;  mean += delta / n;  M2 += delta (theta_n - mean);  variance = M2 / n
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


class Moments:
    """Mean, variance and deviations of named weights, gathered by `update`.

    Args:
        weights: By name; read at each update.
        rank: K, how many deviations are kept.
        dtype: Of the deviations: torch.bfloat16 halves their memory (float16 would lose small ones); the weights' own
            if None.
        device: Of everything kept, such as "cpu" while the network is on a GPU; the weights' own if None.

    Raises:
        ValueError: If there are no weights or the rank is negative.
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
            raise ValueError(f"rank={rank} is negative")
        self.weights, self.rank, self.number = dict(weights), rank, 0
        self.mean: dict[str, Tensor] = {}
        self._squares: dict[str, Tensor] = {}
        self._rows: dict[str, Tensor] = {}  # [K, ...], written in turn
        for name, weight in self.weights.items():
            place = torch.device(device) if device is not None else weight.device
            self.mean[name] = torch.zeros_like(weight, device=place, requires_grad=False)
            self._squares[name] = torch.zeros_like(self.mean[name])
            self._rows[name] = torch.zeros(rank, *weight.shape, dtype=dtype or weight.dtype, device=place)

    @torch.no_grad()
    def update(self) -> None:
        """Take the weights as they are now as a snapshot."""
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
        """Return E[theta^2] - E[theta]^2 of each weight, never negative.

        Raises:
            ValueError: If there was no snapshot.
        """
        if not self.number:
            raise ValueError("no snapshot was taken yet")
        return {name: squares / self.number for name, squares in self._squares.items()}

    def deviations(self) -> dict[str, Tensor]:
        """Return the last deviations of each weight, [at most K, ...], the newest first.

        The first snapshot has none: it was the mean.
        """
        number = min(max(self.number - 1, 0), self.rank)
        order = [(self.number - 1 - back) % self.rank for back in range(number)]
        return {name: rows[order] for name, rows in self._rows.items()}

    def state_dict(self) -> dict[str, Tensor]:
        """Return all that is kept."""
        rows = {name: rows[: self.number] for name, rows in self._rows.items()}  # those that are filled
        parts = {"mean": self.mean, "squares": self._squares, "rows": rows}
        state = {f"{part}.{name}": value for part, values in parts.items() for name, value in values.items()}
        return {**state, "number": torch.tensor(self.number)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a state."""
        for part, values in (("mean", self.mean), ("squares", self._squares), ("rows", self._rows)):
            for name, value in values.items():
                stored = state[f"{part}.{name}"]
                (value[: len(stored)] if part == "rows" else value).copy_(stored)
        self.number = int(state["number"])
