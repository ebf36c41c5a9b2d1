"""What a candidate has measured so far: sums over the examples of an epoch, and a row for each epoch."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from torch import Tensor

from deelbo._weight_passes import scalar_dtype

SUMS = ("data_loss", "nll", "score", "examples")


class History:
    """Rows of measurements, and the sums of the epoch that is going on.

    The sums stay on the device until they are asked for, because reading them makes the host wait for a GPU.
    """

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []
        self._epoch = dict.fromkeys(SUMS, 0.0)
        self._unread: Tensor | None = None  # what is to be added to the sums of the epoch
        self._column = ""

    def add(self, sums: Tensor, column: str) -> None:
        """Add sums over the examples of a step.

        Args:
            sums: The data's loss, the negative log-likelihood, the score, and the number of examples.
            column: Name of the score's column.
        """
        self._column = column
        sums = sums.to(dtype=scalar_dtype(sums.device))
        self._unread = sums if self._unread is None else self._unread + sums

    def sums(self) -> dict[str, float]:
        """Return the sums of this epoch, after reading what has come to them since the last time."""
        if self._unread is not None:
            for name, value in zip(SUMS, self._unread.tolist(), strict=True):
                self._epoch[name] += value
            self._unread = None
        return self._epoch

    @property
    def diverged(self) -> bool:
        """Whether the loss has become infinite or undefined."""
        return not math.isfinite(self.sums()["data_loss"])

    def means(self) -> dict[str, float]:
        """Return means over the examples of this epoch, and begin a new one unless the loss has diverged."""
        sums, examples = self.sums(), self.sums()["examples"]
        means = {"data_loss": sums["data_loss"] / examples, "nll": sums["nll"] / examples}
        means[self._column] = sums["score"] / examples
        if not self.diverged:
            self._epoch = dict.fromkeys(SUMS, 0.0)
        return means

    def notes(self) -> dict[str, Any]:
        """Return all of it as plain values, for a state."""
        return {"history": [dict(row) for row in self.rows], "epoch": dict(self.sums()), "score": self._column}

    def restore(self, notes: dict[str, Any]) -> None:
        """Continue from what `notes` returned."""
        self.rows, self._epoch = [dict(row) for row in notes["history"]], dict(notes["epoch"])
        self._column, self._unread = notes["score"], None


def speed_of(clocks: Iterable[dict[str, float]], before: float) -> dict[str, float]:
    """Return the speed of training, from the clocks of all candidates.

    Args:
        clocks: Clocks of the candidates.
        before: Seconds before the first step, which "seconds" includes.

    Returns:
        "examples_per_second" of training steps; "outside_network", the share of those steps that is spent outside the
        forward and backward passes (data, noise, prior, optimizer); "data", the part of that for data; "seconds" of
        the start and all steps, and "seconds_objective" of estimates of the objective.
    """
    clocks = list(clocks)
    total = {name: sum(clock[name] for clock in clocks) for name in clocks[0]}
    steps = max(total["steps"], 1e-9)
    return {
        "examples_per_second": total["examples"] / steps,
        "outside_network": 1 - total["network"] / steps,
        "data": total["data"] / steps,
        "seconds": before + total["steps"],
        "seconds_objective": total["objective"],
    }
