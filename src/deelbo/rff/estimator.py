"""Base class of the regressor and the classifier: parameter checks, random features, device, progress bar."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor

from deelbo._extras import require

try:
    import numpy
    from sklearn.base import BaseEstimator
    from sklearn.utils.validation import check_random_state
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f'{error.name} is missing: pip install "deelbo[rff]"', name=error.name) from error

DTYPES = {"float64": torch.float64, "float32": torch.float32}


class RFFEstimator(BaseEstimator):
    """Base class of `RFFRegressor` and `RFFClassifier`, which set the parameters declared here."""

    num_features: int
    objective: str
    random_state: Any
    dtype: str
    device: str
    verbose: int
    kappa: float | None
    max_iter: int

    def _check_parameters(self, integers: tuple[str, ...], **choices: tuple[str, ...]) -> None:
        for name, allowed in {**choices, "dtype": tuple(DTYPES)}.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name}={getattr(self, name)!r}, but it must be one of {', '.join(allowed)}")
        for name in integers:
            value = getattr(self, name)
            if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name}={value!r} must be a positive integer")
        self._check_positive("kappa", None)
        if self.kappa is not None and self.objective != "de-elbo":
            raise ValueError(
                f'kappa={self.kappa} belongs to objective="de-elbo", not to {self.objective!r}: leave it None'
            )
        try:
            torch.empty(0, device=self.device)
        except (RuntimeError, AssertionError) as error:
            raise ValueError(
                f'device={self.device!r} is not available on this machine: use another, such as "cpu"'
            ) from error

    def _check_positive(self, name: str, *others: float | None) -> None:
        """Raise ValueError unless the parameter is a positive number or one of the `others` (such as None)."""
        value = getattr(self, name)
        if value not in others and (not isinstance(value, Real) or not 0 < float(value) < math.inf):
            raise ValueError(f"{name}={value!r} must be positive" + "".join(f", or {other}" for other in others))

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Enable gradients for a fit, and restore the estimator's attributes if the fit fails or is interrupted."""
        before = dict(self.__dict__)
        try:
            with torch.inference_mode(False), torch.enable_grad():
                yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _check_memory(self, needed: float) -> None:
        """Check before the fit that it will not run out of memory.

        Args:
            needed: Estimated memory use of the fit, in bytes.

        Raises:
            MemoryError: If the machine has less memory than that.
        """
        if self.device != "cpu" or "SC_AVPHYS_PAGES" not in os.sysconf_names:
            return
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if needed > total:
            raise MemoryError(
                f"num_features={self.num_features:,} needs about {needed / 2**30:,.0f} GiB for this data, "
                f"and the machine has {total / 2**30:,.0f}: choose fewer features"
            )

    def _tensor(self, values: Any) -> Tensor:
        """Return values as a tensor on the device and in the precision of the fitted features, or of the next fit."""
        if getattr(values, "flags", None) is not None and (
            not values.flags.writeable or min(values.strides, default=0) < 0
        ):
            values = values.copy()  # PyTorch would warn, or refuse
        fitted = getattr(self, "_A", None)
        dtype = DTYPES[self.dtype] if fitted is None else fitted.dtype
        return torch.as_tensor(values, dtype=dtype, device=self.device if fitted is None else fitted.device)

    def _scale_inputs(self, X: Any, ard: bool) -> None:
        """Learn the shift and the unit of the inputs: far from zero phases lose digits, and the search needs a unit."""
        with numpy.errstate(over="ignore", invalid="ignore"):
            self._center, self._unit = X.mean(0), X.std(0)
        if not numpy.isfinite(self._unit).all():
            raise ValueError("X has values that are too large to compute their standard deviation: rescale the inputs")
        self._unit[~(self._unit > 1e-12 * abs(self._center))] = 0.0  # a constant column
        if ard:
            self._unit[self._unit == 0] = 1.0
        else:
            self._unit = float((self._unit**2).mean() ** 0.5) or 1.0

    def _inputs(self, X: Any) -> Tensor:
        """Return the shifted and scaled inputs that the random features are computed from.

        Raises:
            ValueError: If a value overflows in the chosen precision.
        """
        x = self._tensor((X - self._center) / self._unit)
        if not bool(x.isfinite().all()):
            raise ValueError(f"X has values that are too large for {x.dtype}: rescale the inputs")
        return x

    def _draw_features(self, inputs: int) -> tuple[Tensor, Tensor, int]:
        """Return random frequencies A [inputs, R], phases b [R], and a seed for the other random numbers of a fit."""
        random = check_random_state(self.random_state)
        A = random.standard_normal((inputs, self.num_features))
        b = random.uniform(0, 2 * torch.pi, self.num_features)
        return self._tensor(A), self._tensor(b), int(random.randint(2**31 - 1))

    def _emphasis(self, num_params: int, number: int) -> float:
        """Return kappa: for the DE-ELBO the user's value or max(1, D/N), for the other objectives 1."""
        if self.objective != "de-elbo":
            return 1.0
        return max(1.0, num_params / number) if self.kappa is None else float(self.kappa)

    @contextmanager
    def _progress(self, total: int | None = None) -> Iterator[Callable[[float], None]]:
        """Yield a function to call with each value of the objective; with `verbose` it updates a progress bar."""
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
