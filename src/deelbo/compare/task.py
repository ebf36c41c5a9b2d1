"""What is compared: a task that every method solves, and the single training runs that they spend on it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from deelbo.job import Job
from deelbo.laplace.conditional import SAMPLES, TEMPERATURES
from deelbo.training.settings import SEARCHES, Settings

RECORD = 1  # to be raised when training itself changes, so that older results count no longer
STRENGTHS = (0.01, 0.001, 0.0001, 1e-5, 1e-6, 0.0)  # the paper's grid of alpha/N and beta/N
PTYL_VARIANCES = tuple(10.0**k for k in range(10))  # and of lambda with the prior PTYL


@dataclass(frozen=True)
class Options:
    """How much the methods may spend; the defaults are the paper's.

    Args:
        methods: Names in the registry of strategies.
        settings: Fields of `Settings` that all runs share, such as steps and batch_size.
        learning_rates: Candidates of all methods that choose among some.
        lr_search: Of "de-elbo" and "elbo": "race" or "grid".
        kappas: Of "de-elbo"; None stands for D/N.
        strengths: Candidates of alpha/N and beta/N for the grids; 0 for no regularisation.
        ptyl_variances: Candidates of lambda with the prior PTYL.
        bo_iterations: Runs of one Bayesian optimisation.
        bo_runs: Repetitions of it, each from another random start.
        clml_samples: Draws for the conditional marginal likelihood.
        temperatures: Candidates for it.
    """

    methods: tuple[str, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    learning_rates: tuple[float, ...] = (0.1, 0.01, 0.001, 0.0001)
    lr_search: str = "race"
    kappas: tuple[float | None, ...] = (None,)
    strengths: tuple[float, ...] = STRENGTHS
    ptyl_variances: tuple[float, ...] = PTYL_VARIANCES
    bo_iterations: int = 35
    bo_runs: int = 1
    clml_samples: int = SAMPLES
    temperatures: tuple[float, ...] = TEMPERATURES

    def __post_init__(self) -> None:
        if self.lr_search not in SEARCHES:
            raise ValueError(f"lr_search={self.lr_search!r}, but it is one of {', '.join(SEARCHES)}")
        for name, lowest in (("strengths", 0.0), ("ptyl_variances", math.ulp(0.0)), ("learning_rates", math.ulp(0.0))):
            values = getattr(self, name)
            if not values or not all(lowest <= v < math.inf for v in values) or len(set(values)) != len(values):
                raise ValueError(
                    f"{name} must be different positive numbers, not {', '.join(f'{v:g}' for v in values)}"
                )
        for name in ("bo_iterations", "bo_runs", "clml_samples"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not self.kappas or not all(kappa is None or 0 < kappa < math.inf for kappa in self.kappas):
            raise ValueError(f"kappas must be positive numbers, not {self.kappas}")
        if not self.temperatures or not all(0 < t < math.inf for t in self.temperatures):
            raise ValueError(f"temperatures must be positive numbers, not {self.temperatures}")


@dataclass(frozen=True)
class Trial:
    """One training run: all that its result depends on.

    Args:
        job: Data, model and training size.
        data: Fingerprint of the whole data, training and test.
        network: Fingerprint of the pretrained network, how it reads its inputs, and the source posterior.
        settings: Of the run; its seed also chooses the training subset.
        held_out: Whether a fifth of the training set is kept for validation.
        clml: Draws and temperatures for the conditional marginal likelihood of that fifth.
        test_size: Test examples to use; None for all.
        precision: Of autocast.
    """

    job: Job
    data: str
    network: str
    settings: Settings
    held_out: bool = False
    clml: tuple[int, tuple[float, ...]] | None = None
    test_size: int | None = None
    precision: str = "no"

    def identity(self) -> dict[str, Any]:
        """Return what makes two runs the same: the content of the data and of the network, not where they are."""
        settings = self.settings.as_dict()
        if self.settings.source is not None:
            settings["prior"] = "ptyl"
        return {
            "record": RECORD,
            "data": self.data,
            "network": self.network,
            "job": {name: getattr(self.job, name) for name in ("train_size", "head", "flip", "skip_bad")},
            "settings": settings,
            "held_out": self.held_out,
            "clml": None if self.clml is None else [self.clml[0], list(self.clml[1])],
            "test_size": self.test_size,
            "precision": self.precision,
        }

    @cached_property
    def key(self) -> str:
        """A hash of the identity: the name of the record."""
        text = json.dumps(self.identity(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    def describe(self) -> str:
        """Return a few words for progress and messages."""
        settings = self.settings
        rates = ",".join(f"{rate:.3g}" for rate in settings.learning_rates)
        variances = "".join(f", {name} {value:.3g}" for name, value in (settings.prior_variances or {}).items())
        part = " on 4/5" if self.held_out else ""
        size = "" if self.job.train_size is None else f", N = {self.job.train_size}"
        kappa = "" if settings.kappa is None else f", kappa {settings.kappa:.3g}"
        where = f"{model_name(self.job.model)}, {prior_name(settings.prior)}{size}, seed {settings.seed}"
        return f"{settings.method}{part}, {where}, rate {rates}{kappa}{variances}"


def model_name(spec: str) -> str:
    """Return a model's name without the folders that it is in."""
    prefix, _, name = spec.partition(":")
    return f"{prefix}:{Path(name).name}" if Path(name).is_absolute() else spec


def prior_name(prior: str) -> str:
    """Return a prior's name, of PTYL with its file but not the folders that it is in."""
    return f"ptyl:{Path(prior.removeprefix('ptyl:')).stem}" if prior.startswith("ptyl:") else prior


@dataclass(frozen=True)
class Task:
    """A training set, a model and a prior: what every method makes a classifier of.

    Args:
        job: Data, model and training size.
        data: Fingerprint of the whole data.
        network: Fingerprint of the pretrained network, how it reads its inputs, and the source posterior.
        prior: As in `Settings`.
        seed: Of the subset and of everything random.
        number: N, the size of the training set.
        held_out: How many of them the searches hold out.
        options: How much the methods may spend.
        test_size: Test examples to use; None for all.
        precision: Of autocast.
    """

    job: Job
    data: str
    network: str
    prior: str
    seed: int
    number: int
    held_out: int
    options: Options
    test_size: int | None = None
    precision: str = "no"

    def trial(self, **settings: Any) -> Trial:
        """Return a run on the whole training set."""
        chosen = Settings(**{**self.options.settings, "prior": self.prior, "seed": self.seed, **settings})
        return Trial(self.job, self.data, self.network, chosen, test_size=self.test_size, precision=self.precision)

    def point(self, strengths: dict[str, float], rate: float, whole: bool, clml: bool = False) -> Trial:
        r"""Return a MAP run.

        Args:
            strengths: alpha/N by group of the prior: the loss is mean NLL + sum_g (alpha_g/N)/2 |theta_g - mean_g|^2,
                so that the variance is 1/alpha_g; 0 for none. With the prior PTYL, that of the backbone is lambda.
            rate: Learning rate.
            whole: Whether on the whole training set, or on four fifths.
            clml: Whether the conditional marginal likelihood of the fifth is wanted.
        """
        number = self.number if whole else self.number - self.held_out
        variances = {
            group: value if self.ptyl and group == "backbone" else math.inf if value == 0 else 1 / (value * number)
            for group, value in strengths.items()
        }
        trial = self.trial(method="map", prior_variances=variances, learning_rates=(rate,), lr_search="grid")
        draws = (self.options.clml_samples, self.options.temperatures) if clml else None
        return dataclasses.replace(trial, held_out=not whole, clml=draws)

    @property
    def ptyl(self) -> bool:
        """Whether the prior is a source task's posterior."""
        return self.prior.startswith("ptyl:")

    @property
    def groups(self) -> tuple[str, ...]:
        """The prior's groups, of those that the grids know.

        Raises:
            ValueError: If the prior has more than a backbone and a head.
        """
        if self.prior == "per-layer":
            raise ValueError("searches know the priors l2-sp, l2-zero and ptyl, not per-layer with its many variances")
        return ("backbone", "head")
