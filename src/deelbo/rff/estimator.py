"""What the regressor and the classifier share: checks, random features, device, progress."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from deelbo._extras import require

try:
    from sklearn.base import BaseEstimator
    from sklearn.utils.validation import check_random_state
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f'{error.name} is missing: pip install "deelbo[rff]"', name=error.name) from error

DTYPES = {"float64": torch.float64, "float32": torch.float32}


class RFFEstimator(BaseEstimator):
    """Base of `RFFRegressor` and `RFFClassifier`."""

    num_features: int
    random_state: Any
    dtype: str
    device: str
    verbose: int
    kappa: float | None
    max_iter: int

    def _check_parameters(self, **choices: tuple[str, ...]) -> None:
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name}={getattr(self, name)!r}, but it is one of {', '.join(allowed)}")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype={self.dtype!r}, but it is one of {', '.join(DTYPES)}")
        for name in ("num_features", "max_iter"):
            if not getattr(self, name) >= 1:
                raise ValueError(f"{name}={getattr(self, name)} must be positive")
        if self.kappa is not None and not self.kappa > 0:
            raise ValueError(f"kappa={self.kappa} must be positive")

    def _check_memory(self, numbers: float) -> None:
        """Refuse early what would be killed late.

        Raises:
            MemoryError: If so many numbers do not fit.
        """
        needed = numbers * DTYPES[self.dtype].itemsize
        if self.device != "cpu" or "SC_AVPHYS_PAGES" not in os.sysconf_names:
            return
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if needed > total:
            raise MemoryError(
                f"num_features={self.num_features:,} needs about {needed / 2**30:,.0f} GiB for this data, "
                f"and the machine has {total / 2**30:,.0f}"
            )

    def _tensor(self, values: Any) -> Tensor:
        flags = getattr(values, "flags", None)
        shared = flags is None or flags.writeable  # nothing writes to it, but PyTorch warns
        return torch.as_tensor(values if shared else values.copy(), dtype=DTYPES[self.dtype], device=self.device)

    def _draw_features(self, inputs: int) -> tuple[Tensor, Tensor, int]:
        """Return A, b and a seed for what else is random."""
        random = check_random_state(self.random_state)
        A = random.standard_normal((inputs, self.num_features))
        b = random.uniform(0, 2 * torch.pi, self.num_features)
        return self._tensor(A), self._tensor(b), int(random.randint(2**31 - 1))

    def _emphasis(self, number: int, outputs: int) -> float:
        """kappa: 1 for the ELBO, max(1, D/N) or the user's otherwise."""
        if getattr(self, "objective", None) == "elbo":
            return 1.0
        return max(1.0, self.num_features * outputs / number) if self.kappa is None else float(self.kappa)

    @contextmanager
    def _progress(self, total: int | None = None) -> Iterator[Callable[[float], None]]:
        """Give a function to call with each value of the objective; with `verbose`, a bar shows the best."""
        if not self.verbose:
            yield lambda value: None
            return
        progress = require("rich.progress", "rff")
        best = -float("inf")
        columns = (
            progress.TextColumn("{task.description}"), progress.BarColumn(), progress.MofNCompleteColumn(),
            progress.TimeElapsedColumn(), progress.TextColumn("objective per row {task.fields[best]}"),
        )  # fmt: skip
        console = require("rich.console", "rff").Console(stderr=True)
        with progress.Progress(*columns, console=console) as bar:
            task = bar.add_task(type(self).__name__, total=total, best="")

            def show(value: float) -> None:
                nonlocal best
                best = max(best, value)
                bar.update(task, advance=1, best=f"{best:.4f}")

            yield show
