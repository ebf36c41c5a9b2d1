"""The settings of a fine-tuning run: the paper's, each an option."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

METHODS = ("de-elbo", "elbo", "map", "la-lml")
PRIORS = ("l2-sp", "l2-zero", "per-layer", "ptyl:FILE")
SEARCHES = ("race", "grid")
OPTIMIZERS = ("sgd", "adamw")


@dataclass(frozen=True)
class Settings:
    """What a run is made of, beside the network and the data.

    Args:
        method: "de-elbo", "elbo" (kappa = 1), "map" (fixed prior variances, no posterior) or "la-lml" (prior variances
            learned by Laplace's approximation after every epoch).
        prior: "l2-sp", "l2-zero", "per-layer", or "ptyl:FILE" with the posterior of a source task (`deelbo prior`).
        rank: Of PTYL: how many of the source task's deviations are used.
        diagonal: Of PTYL: what is added to the diagonal of its covariance.
        kappa: How much the data are emphasized; None for max(1, D/N). Only for "de-elbo".
        prior_variances: The fixed variances of "map", by group, such as {"backbone": 0.1, "head": 1.0}; infinity for
            no regularisation.
        learning_rates: Candidates; the training objective decides.
        lr_search: "race" drops candidates early, "grid" trains each in full.
        steps: Optimizer steps of a full run.
        batch_size: Examples a step; of all processes together.
        optimizer: "sgd" (Nesterov momentum) or "adamw" (without weight decay: the prior regularises).
        momentum: Of SGD.
        clip: Norm at which the whole gradient is clipped; None for never.
        init_scale: Where the posterior's scale starts.
        samples: Draws for the estimate of the objective that chooses.
        refresh_batch_norm: Whether batch-normalisation statistics are estimated anew at the mean weights.
        seed: Of everything random.

    Raises:
        ValueError: If a value is out of range.
    """

    method: str = "de-elbo"
    prior: str = "l2-sp"
    rank: int = 5
    diagonal: float = 0.1
    kappa: float | None = None
    prior_variances: dict[str, float] | None = None
    learning_rates: tuple[float, ...] = (0.1, 0.01, 0.001, 0.0001)
    lr_search: str = "race"
    steps: int = 6000
    batch_size: int = 128
    optimizer: str = "sgd"
    momentum: float = 0.9
    clip: float | None = 1.0
    init_scale: float = 1e-4
    samples: int = 10
    refresh_batch_norm: bool = True
    seed: int = 0

    @property
    def source(self) -> str | None:
        """The file of a PTYL prior."""
        return self.prior.removeprefix("ptyl:") if self.prior.startswith("ptyl:") else None

    def __post_init__(self) -> None:
        for name, choices in (
            ("method", METHODS),
            ("prior", PRIORS),
            ("lr_search", SEARCHES),
            ("optimizer", OPTIMIZERS),
        ):
            if getattr(self, name) not in choices and not (name == "prior" and self.source):
                raise ValueError(f"{name}={getattr(self, name)!r}, but it is one of {', '.join(choices)}")
        rates = (self.learning_rates,) if isinstance(self.learning_rates, (int, float)) else self.learning_rates
        object.__setattr__(self, "learning_rates", tuple(float(rate) for rate in rates))
        if self.prior_variances is not None:  # JSON writes infinity as a word
            object.__setattr__(self, "prior_variances", {n: float(v) for n, v in self.prior_variances.items()})
        if not self.learning_rates or not all(0 < rate < math.inf for rate in self.learning_rates):
            raise ValueError(f"learning_rates must be positive numbers, not {self.learning_rates}")
        if len(set(self.learning_rates)) != len(self.learning_rates):
            raise ValueError(f"learning_rates has a value twice: {self.learning_rates}")
        for name in ("steps", "batch_size", "samples"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        ranges = {
            "rank": self.rank >= 0,
            "diagonal": 0 <= self.diagonal < math.inf,
            "kappa": self.kappa is None or 0 < self.kappa < math.inf,
            "momentum": 0 <= self.momentum < 1,
            "clip": self.clip is None or 0 < self.clip < math.inf,
            "init_scale": 0 < self.init_scale < math.inf,
            "seed": 0 <= self.seed < 2**63,
            "prior_variances": all(v > 0 for v in (self.prior_variances or {}).values()),
        }
        for name, right in ranges.items():
            if not right:
                raise ValueError(f"{name}={getattr(self, name)} is out of range")
        if self.kappa is not None and self.method != "de-elbo":
            raise ValueError(f'kappa belongs to method="de-elbo", not to {self.method!r}')
        if (self.prior_variances is None) == (self.method == "map"):
            raise ValueError('prior_variances are what method="map" needs, and no other method takes')

    def as_dict(self) -> dict[str, object]:
        """Return plain values for JSON."""
        plain = {**dataclasses.asdict(self), "learning_rates": list(self.learning_rates)}
        if self.prior_variances is not None:
            plain["prior_variances"] = plain_variances(self.prior_variances)
        return plain

    def differences(self, stored: dict[str, object]) -> list[str]:
        """Say which stored settings are others than these, one line each."""
        own = self.as_dict()
        names = dict.fromkeys([*own, *stored])
        return [f"{n}: {stored.get(n)!r} -> {own.get(n)!r}" for n in names if own.get(n) != stored.get(n)]


def plain_variances(variances: dict[str, float]) -> dict[str, float | str]:
    """Return variances for JSON, which has no infinity; `float` reads the word."""
    return {name: "inf" if value == math.inf else value for name, value in variances.items()}
