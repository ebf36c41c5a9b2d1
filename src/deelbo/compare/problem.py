"""Problems that every method of a comparison solves, and the single training runs (trials) that they need."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from deelbo.laplace.conditional import SAMPLES, TEMPERATURES
from deelbo.posteriors import POSTERIORS
from deelbo.priors import SearchAxis, make_recipe, short_name
from deelbo.specs import DataSpec, ModelSpec
from deelbo.training.settings import LATER, LEARNING_RATES, SEARCHES, Settings

RECORD = 3  # version of training; raise it when training changes, so that older records are not used
STRENGTHS = (0.01, 0.001, 0.0001, 1e-5, 1e-6, 0.0)  # the paper's grid of alpha/N and beta/N
SWEEP = 10  # number of kappas from 1 to D in the paper's sweep
PTYL_VARIANCES = tuple(10.0**k for k in range(10))  # the paper's grid of lambda with the prior PTYL
# The penalty that MAP adds to the mean loss with the prior PTYL: 1/(2 lambda) in the authors' code, so that one grid
# serves every N, and 1/(2 lambda N) in the paper's text, which hardly regularises where N is large.
PTYL_SCALINGS = ("mean", "sum")
RETRAINS = ("best", "all")


def kappa_sweep(num_params: int, number: int = SWEEP) -> tuple[float, ...]:
    """Return values of kappa from 1 to D = num_params, equally far apart on a logarithmic scale.

    Example:
        >>> from deelbo.compare.problem import kappa_sweep
        >>> kappa_sweep(1000, 4)
        (1.0, 10.0, 100.0, 1000.0)
    """
    return tuple(float(f"{num_params ** (i / (number - 1)):.6g}") for i in range(number))


@dataclass(frozen=True)
class Options:
    """Settings of the methods, such as grids and numbers of runs; the defaults are the paper's.

    Args:
        methods: Names of the methods in the registry of strategies.
        settings: Fields of `Settings` that all runs share, such as steps and batch_size.
        learning_rates: Candidates for the learning rate, for all methods except Bayesian optimisation.
        lr_search: How "de-elbo" and "elbo" choose the learning rate: "race" or "grid".
        kappas: Values of kappa (emphasis of the data) that "de-elbo" is run with; None stands for D/N.
        posteriors: Posteriors that "de-elbo" and "elbo" are run with: "isotropic", "diagonal".
        draws: Number of draws from the posterior in a training step of "de-elbo" and "elbo".
        strengths: Candidates for the strengths alpha/N and beta/N of the grids; 0 for no regularisation.
        ptyl_variances: Candidates for lambda with the prior PTYL.
        ptyl_scaling: Whether PTYL's penalty d^T Sigma^-1 d / (2 lambda) is added to the mean loss ("mean", the authors'
            code) or to the sum over N examples ("sum", the paper's text).
        retrain: What a search trains again on all examples: "best", the cell that is its result, or "all" that it could
            have chosen had it stopped earlier, for the paper's results over time.
        bo_iterations: Number of runs of one Bayesian optimisation.
        bo_runs: Number of repetitions of the Bayesian optimisation, each from another random start.
        clml_samples: Number of draws at each temperature for the conditional marginal likelihood.
        temperatures: Candidates for the temperature of the conditional marginal likelihood's draws.
    """

    methods: tuple[str, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    learning_rates: tuple[float, ...] = LEARNING_RATES
    lr_search: str = "race"
    kappas: tuple[float | None, ...] = (None,)
    posteriors: tuple[str, ...] = ("isotropic",)
    draws: int = 1
    strengths: tuple[float, ...] = STRENGTHS
    ptyl_variances: tuple[float, ...] = PTYL_VARIANCES
    ptyl_scaling: str = "mean"
    retrain: str = "best"
    bo_iterations: int = 35
    bo_runs: int = 1
    clml_samples: int = SAMPLES
    temperatures: tuple[float, ...] = TEMPERATURES

    def __post_init__(self) -> None:
        for name, known in {"lr_search": SEARCHES, "ptyl_scaling": PTYL_SCALINGS, "retrain": RETRAINS}.items():
            if getattr(self, name) not in known:
                raise ValueError(f"{name}={getattr(self, name)!r}, but it is one of {', '.join(known)}")
        for name, lowest in (("strengths", 0.0), ("ptyl_variances", math.ulp(0.0)), ("learning_rates", math.ulp(0.0))):
            values = getattr(self, name)
            if not values or not all(lowest <= v < math.inf for v in values) or len(set(values)) != len(values):
                text = ",".join(f"{v:g}" for v in values) or "none"
                raise ValueError(f"{name}={text}: there is no value, one out of range, or one given twice")
        for name in ("bo_iterations", "bo_runs", "clml_samples", "draws"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}, but it must be at least 1")
        for posterior in self.posteriors:
            POSTERIORS[posterior]
        if not self.posteriors or len(set(self.posteriors)) != len(self.posteriors):
            raise ValueError(f"posteriors={','.join(self.posteriors)}: there is none, or one given twice")
        if not self.kappas or not all(kappa is None or 0 < kappa < math.inf for kappa in self.kappas):
            raise ValueError(f"kappas={','.join(map(str, self.kappas))}, but they must be positive numbers")
        if not self.temperatures or not all(0 < t < math.inf for t in self.temperatures):
            raise ValueError(f"temperatures={','.join(map(str, self.temperatures))}, but they must be positive numbers")


@dataclass(frozen=True)
class Trial:
    """One training run, defined by all that its result depends on.

    Args:
        data_spec: Specification of the data, with the number of training examples.
        model_spec: Specification of the model.
        data: Hash of all examples, for training and testing.
        network: Hash of the pretrained network, the format of its inputs, and the prior's file.
        settings: Settings of the run; its seed also chooses the training subset.
        held_out: Whether a fifth of the training set is held out for validation.
        clml: Number of draws, and temperatures, for the conditional marginal likelihood of that fifth; None without it.
        test_size: Number of test examples to use; None for all.
        precision: Precision of autocast: "no", "fp16" or "bf16".
        library: Name of the library that trains: "deelbo", or "setfit" with the steps and batch size of `settings`.
    """

    data_spec: DataSpec
    model_spec: ModelSpec
    data: str
    network: str
    settings: Settings
    held_out: bool = False
    clml: tuple[int, tuple[float, ...]] | None = None
    test_size: int | None = None
    precision: str = "no"
    library: str = "deelbo"

    def identity(self) -> dict[str, Any]:
        """Return all that makes two runs the same: the content of data and network, not their paths."""
        settings = {**self.settings.as_dict(), "prior": self.settings.prior.partition(":")[0]}
        for name, usual in LATER.items():  # so that older records are still found
            if settings[name] == usual:
                del settings[name]
        if self.settings.blend is None:  # older records have another default
            settings["blend"] = "as far back as classes stay together"
        return {
            "record": RECORD,
            "data": self.data,
            "network": self.network,
            "train_size": self.data_spec.train_size,
            "flip": self.data_spec.flip,
            "skip_bad": self.data_spec.skip_bad,
            "head": self.model_spec.head,
            "settings": settings,
            "held_out": self.held_out,
            # The last word says what temperatures are factors of: older records have factors of the covariance.
            "clml": None if self.clml is None else [self.clml[0], list(self.clml[1]), "std"],
            "test_size": self.test_size,
            "precision": self.precision,
            "library": self.library,
            **({} if self.data_spec.per_class is None else {"per_class": self.data_spec.per_class}),
        }

    @cached_property
    def key(self) -> str:
        """Hash of the identity, which is the name of the run's record."""
        text = json.dumps(self.identity(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    def describe(self) -> str:
        """Return a short description of the run for progress and messages."""
        settings = self.settings
        rates = ",".join(f"{rate:.3g}" for rate in settings.learning_rates)
        variances = "".join(f", {name} {value:.3g}" for name, value in (settings.prior_variances or {}).items())
        part = " on 4/5" if self.held_out else ""
        size = "" if self.data_spec.train_size is None else f", N = {self.data_spec.train_size}"
        size += "" if self.data_spec.per_class is None else f", {self.data_spec.per_class} a class"
        kappa = "" if settings.kappa is None else f", kappa {settings.kappa:.3g}"
        kappa += "" if settings.posterior == "isotropic" else f", {settings.posterior} posterior"
        where = f"{model_name(self.model_spec.model)}, {short_name(settings.prior)}{size}, seed {settings.seed}"
        if self.library != "deelbo":
            return f"{self.library}, {where}"
        return f"{settings.method}{part}, {where}, rate {rates}{kappa}{variances}"


def model_name(spec: str) -> str:
    """Return a model's name without the folders of its path."""
    prefix, _, name = spec.partition(":")
    return f"{prefix}:{Path(name).name}" if Path(name).is_absolute() else spec


@dataclass(frozen=True)
class Problem:
    """A training set, a model and a prior, from which every method makes a trained network.

    Args:
        data_spec: Specification of the data, with the number of training examples.
        model_spec: Specification of the model.
        data: Hash of all examples, for training and testing.
        network: Hash of the pretrained network, the format of its inputs, and the prior's file.
        prior: Name of the prior, as in `Settings`.
        seed: Seed of the training subset and of everything random.
        number: N, the size of the training set.
        held_out: Number of training examples that searches hold out.
        options: Settings of the methods.
        test_size: Number of test examples to use; None for all.
        precision: Precision of autocast: "no", "fp16" or "bf16".
    """

    data_spec: DataSpec
    model_spec: ModelSpec
    data: str
    network: str
    prior: str
    seed: int
    number: int
    held_out: int
    options: Options
    test_size: int | None = None
    precision: str = "no"

    @property
    def likelihood(self) -> str:
        """Name of the likelihood of the targets."""
        return self.trial().settings.likelihood

    def trial(self, *, held_out: bool = False, library: str = "deelbo", **settings: Any) -> Trial:
        """Return a run with some settings changed.

        Args:
            held_out: Whether to train on four fifths and validate on the rest, or to train on all.
            library: Name of the library that trains.
            settings: Fields of `Settings` that differ from those that all runs share.
        """
        chosen = Settings(**{**self.options.settings, "prior": self.prior, "seed": self.seed, **settings})
        return Trial(
            data_spec=self.data_spec,
            model_spec=self.model_spec,
            data=self.data,
            network=self.network,
            settings=chosen,
            held_out=held_out,
            test_size=self.test_size,
            precision=self.precision,
            library=library,
        )

    def point(self, values: tuple[float, ...], rate: float, whole: bool, clml: bool = False) -> Trial:
        r"""Return a MAP run, one point of a search.

        Args:
            values: A number for each axis of `search_axes`: a strength alpha/N, where the loss is mean NLL +
                sum_g (alpha_g/N)/2 |theta_g - mean_g|^2 and so the variance is 1/alpha_g (0 for no regularisation); or
                PTYL's lambda, as the axis says: the variance itself, or N times it, by `Options.ptyl_scaling`.
            rate: Learning rate.
            whole: Whether to train on the whole training set, or on four fifths.
            clml: Whether to compute the conditional marginal likelihood of the held-out fifth.
        """
        number = self.number if whole else self.number - self.held_out
        unit = number if self.options.ptyl_scaling == "mean" else 1
        variances = {
            group: value / unit if axis.is_variance else math.inf if value == 0 else 1 / (value * number)
            for axis, value in zip(self.search_axes, values, strict=True)
            for group in axis.groups
        }
        trial = self.trial(
            held_out=not whole, method="map", prior_variances=variances, learning_rates=(rate,), lr_search="grid"
        )
        draws = (self.options.clml_samples, self.options.temperatures) if clml else None
        return dataclasses.replace(trial, clml=draws)

    @property
    def no_regularisation(self) -> dict[str, float]:
        """Infinite prior variances, by group."""
        return {group: math.inf for axis in self.search_axes for group in axis.groups}

    @property
    def search_axes(self) -> tuple[SearchAxis, ...]:
        """The numbers of the prior that searches vary.

        Raises:
            ValueError: If the prior has too many variances for a search.
        """
        axes = make_recipe(self.prior).search_axes
        if not axes:
            raise ValueError(f"prior={self.prior!r} has too many variances for methods that search for them")
        return axes
