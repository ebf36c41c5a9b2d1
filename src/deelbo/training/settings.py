"""The settings of a fine-tuning run; `docs/choosing.md` says which defaults are not the paper's."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from deelbo.likelihoods import LIKELIHOODS
from deelbo.optimizers import OPTIMIZERS
from deelbo.posteriors import POSTERIORS
from deelbo.posteriors.base import SCALE_UPDATES
from deelbo.priors import PriorRecipe, make_recipe
from deelbo.training.batch_norm import BATCH_NORMS
from deelbo.training.method import METHODS
from deelbo.training.start import HEAD_STARTS

# Larger rates look better early and end worse: docs/results.md#learning-rate-race.
LEARNING_RATES = (0.03, 0.01, 0.003)
PAIR_RATES = (0.01,)  # the objective cannot choose for pairs: docs/choosing.md#pairs-before-classes
FEW_PER_CLASS = 2, 20  # training texts for which pairs are the default, with at most so many classes:
PAIRED_CLASSES = 8
SEARCHES = ("race", "grid")
SCHEDULES = ("cosine", "linear")
# Settings that older runs and records lack, with the only value that they could have had.
LATER: dict[str, Any] = {"posterior": "isotropic", "draws": 1, "pairs": False, "blend": 1.0}
# Length of training in the paper, by the kind of the inputs.
LENGTHS = {"image": {"steps": 6000, "batch_size": 128}, "text": {"steps": 12000, "batch_size": 32}}


@dataclass(frozen=True)
class Settings:
    """Settings of a run, beside the network and the data.

    Args:
        method: "de-elbo", "elbo" (kappa = 1), "map" (fixed prior variances, no posterior), "la-lml" (prior variances
            learned by Laplace's approximation after every epoch) or "probe" (a classifier on the frozen network's
            features, without training steps).
        prior: "l2-sp", "l2-zero", "per-layer", or "ptyl:FILE" with the posterior of a source task (`deelbo prior`).
        rank: Number of deviations of the source task that the prior PTYL uses.
        diagonal: Number that the prior PTYL adds to the diagonal of its covariance.
        likelihood: "categorical" (classes), "gaussian" (numbers) or "bernoulli" (several labels).
        class_weights: "none", or "balanced" to let rare classes count as much as frequent ones.
        kappa: How much the data are emphasised; None for the likelihood's default, max(1, D/N). Only for "de-elbo".
        prior_variances: The fixed variances of "map", by group, such as {"backbone": 0.1, "head": 1.0}; infinity for
            no regularisation.
        learning_rates: Candidates for the learning rate; the training objective chooses among them.
        lr_search: "race" drops candidates early, "grid" trains each in full; None for the method's own way, which is
            the race except for "la-lml".
        steps: Number of optimizer steps of a full run.
        batch_size: Number of examples in a step, over all processes together.
        optimizer: "sgd" (Nesterov momentum) or "adamw".
        momentum: Momentum of SGD.
        weight_decay: Weight decay of AdamW, in addition to the prior; only for "map".
        schedule: How the learning rate falls to zero over the steps: "cosine" or "linear".
        clip: Largest norm of the whole gradient, which is clipped at it; None for no limit.
        posterior: Posterior over the weights: "isotropic" (one scale for all) or "diagonal" (one for each weight).
        draws: Number of draws from the posterior in a training step, over which the loss is averaged.
        init_scale: Initial value of the posterior's scale.
        scale_update: How the posterior's scale is learned: "closed-form", or "gradient" as in the paper. Of a diagonal
            posterior the common factor of the scales is set in closed form, their ratios are learned by gradient.
        samples: Number of draws for the estimate of the objective that chooses the learning rate.
        batch_norm: Statistics of batch normalisation: "frozen" keeps the pretrained network's, "batch" uses those of
            each batch and estimates them anew after training, "running" is the usual way, and "auto" takes frozen or
            batch, whichever has the better features before training.
        head_start: Where the classifier starts: "zero", "ridge" or "probe" (ridge or logistic regression on the frozen
            network's features), or "random".
        dropout: Whether dropout and drop-path of the network are active in training.
        pairs: Whether features of one class are drawn together and those of different classes apart, and the classifier
            is fitted to them afterwards, instead of training all weights with the classifier; None to do so where it
            was found to be better, which is for "de-elbo" with a sentence encoder, few classes and few texts, then at
            one learning rate, 0.01, unless others are given.
        blend: How far the finished network lies on the line from the pretrained (0) to the trained weights (1); the
            classifier is fitted anew there. 1 keeps the trained network as it is. None goes back, at most half of the
            way, while texts of one class stay together and are still predicted, where that was found to be better:
            for "de-elbo" with a sentence encoder and without pairs; otherwise it is 1.
        seed: Seed of everything random.

    Raises:
        ValueError: If a value is out of range.
    """

    method: str = "de-elbo"
    prior: str = "l2-sp"
    rank: int = 5
    diagonal: float = 0.1
    likelihood: str = "categorical"
    class_weights: str = "none"
    kappa: float | None = None
    prior_variances: dict[str, float] | None = None
    learning_rates: tuple[float, ...] = LEARNING_RATES
    lr_search: str | None = None
    steps: int = 6000
    batch_size: int = 128
    optimizer: str = "sgd"
    momentum: float = 0.9
    weight_decay: float = 0.0
    schedule: str = "cosine"
    clip: float | None = 1.0
    posterior: str = "isotropic"
    draws: int = 1
    init_scale: float = 1e-4
    scale_update: str = "closed-form"
    samples: int = 10
    batch_norm: str = "auto"
    head_start: str = "zero"
    dropout: bool = True
    pairs: bool | None = None
    blend: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        rates = (self.learning_rates,) if isinstance(self.learning_rates, (int, float)) else self.learning_rates
        object.__setattr__(self, "learning_rates", tuple(float(rate) for rate in rates))
        if self.prior_variances is not None:  # infinity is stored in JSON as the text "inf"
            object.__setattr__(self, "prior_variances", {n: float(v) for n, v in self.prior_variances.items()})
        if self.lr_search is None:
            object.__setattr__(self, "lr_search", METHODS[self.method].lr_search)
        self._check_choices()
        if not (METHODS[self.method].pairs and self.likelihood == "categorical"):
            for name in ("pairs", "blend"):
                if getattr(self, name) is None:
                    object.__setattr__(self, name, LATER[name])
        if not METHODS[self.method].trains:
            for name, value in {"steps": 0, "learning_rates": self.learning_rates[:1], "head_start": "probe"}.items():
                object.__setattr__(self, name, value)
        self._check_ranges()

    def _check_choices(self) -> None:
        method = METHODS[self.method]
        LIKELIHOODS[self.likelihood](class_weights=self.class_weights)
        OPTIMIZERS[self.optimizer]
        POSTERIORS[self.posterior]
        self.prior_recipe()
        choices = {
            "lr_search": SEARCHES,
            "schedule": SCHEDULES,
            "scale_update": SCALE_UPDATES,
            "batch_norm": BATCH_NORMS,
            "head_start": HEAD_STARTS,
        }
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise ValueError(f"{name}={getattr(self, name)!r}, but it is one of {', '.join(known)}")
        for name in dict.fromkeys(name for entry in METHODS.entries() for name in entry.own_settings):
            value = getattr(self, name)
            if value is not None and name not in method.own_settings:
                owners = " or ".join(entry.name for entry in METHODS.entries() if name in entry.own_settings)
                raise ValueError(f"{name}=... is only for method={owners}, but method={self.method!r} was chosen")
            if value is None and name in method.needed_settings:
                raise ValueError(f"method={self.method!r} needs {name}=...")

    def _check_ranges(self) -> None:
        rates = ",".join(f"{rate:g}" for rate in self.learning_rates) or "none"
        if not self.learning_rates or not all(0 < rate < math.inf for rate in self.learning_rates):
            raise ValueError(f"learning_rates={rates}, but they must be positive numbers")
        if len(set(self.learning_rates)) != len(self.learning_rates):
            raise ValueError(f"learning_rates={rates} has a value twice")
        for name in ("steps", "batch_size", "samples", "draws"):
            if getattr(self, name) < (1 if METHODS[self.method].trains or name != "steps" else 0):
                raise ValueError(f"{name}={getattr(self, name)}, but it must be at least 1")
        ranges = {
            "rank": self.rank >= 0,
            "diagonal": 0 <= self.diagonal < math.inf,
            "kappa": self.kappa is None or 0 < self.kappa < math.inf,
            "momentum": 0 <= self.momentum < 1,
            "weight_decay": 0 <= self.weight_decay < math.inf,
            "clip": self.clip is None or 0 < self.clip < math.inf,
            "init_scale": 0 < self.init_scale < math.inf,
            "pairs": self.pairs in (None, True, False),
            "blend": self.blend is None or 0 < self.blend <= 1,
            "seed": 0 <= self.seed < 2**63,
            "prior_variances": all(v > 0 for v in (self.prior_variances or {}).values()),
        }
        for name, right in ranges.items():
            if not right:
                raise ValueError(f"{name}={getattr(self, name)} is out of range")
        if not METHODS[self.method].draws_weights:
            for name, usual in LATER.items():
                if getattr(self, name) != usual:
                    owners = " or ".join(entry.name for entry in METHODS.entries() if entry.draws_weights)
                    raise ValueError(
                        f"{name}={getattr(self, name)} is only for method={owners}, which have a posterior"
                    )
        if self.weight_decay and (self.method, self.optimizer) != ("map", "adamw"):
            raise ValueError(f"weight_decay={self.weight_decay:g} is only for method=map with optimizer=adamw")

    def prior_recipe(self) -> PriorRecipe:
        """Return the recipe by which the prior of these settings is made for a network."""
        return make_recipe(self.prior, self.rank, self.diagonal)

    def decided(self, encoder: bool, number: int, num_classes: int) -> Settings:
        """Return settings that say whether pairs are trained, and whether the end is a blend; equal ones if these do.

        A blend that stays None is decided at the end of training.

        Args:
            encoder: Whether the network is a sentence encoder.
            number: Number of training examples.
            num_classes: Number of classes.
        """
        pairs, blend, rates = self.pairs, self.blend, self.learning_rates
        if pairs is None:
            least, most = FEW_PER_CLASS
            pairs = encoder and num_classes <= PAIRED_CLASSES and least <= number / num_classes <= most
            rates = PAIR_RATES if pairs and rates == LEARNING_RATES else rates
        if pairs or not encoder:
            blend = 1.0 if blend is None else blend
        return dataclasses.replace(self, pairs=pairs, blend=blend, learning_rates=rates)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        plain = {**dataclasses.asdict(self), "learning_rates": list(self.learning_rates)}
        if self.prior_variances is not None:
            plain["prior_variances"] = plain_variances(self.prior_variances)
        return plain

    def differences(self, stored: dict[str, object]) -> list[str]:
        """Return the differences between stored settings and these, one line for each."""
        current, stored = self.as_dict(), {**LATER, **stored}
        names = dict.fromkeys([*current, *stored])
        return [f"{n}: {stored.get(n)!r} -> {current.get(n)!r}" for n in names if current.get(n) != stored.get(n)]


def settings_for(kind: str, likelihood: str, given: dict[str, Any]) -> Settings:
    """Return settings with the defaults for a kind of data.

    Args:
        kind: Kind of the inputs, "image" or "text"; others have the defaults of images.
        likelihood: Name of the likelihood that fits the targets, unless the given settings have one.
        given: Fields of `Settings` that the user chose.

    Raises:
        ValueError: If a value is out of range.
        TypeError: If a name is unknown.
    """
    return Settings(**{**LENGTHS.get(kind, LENGTHS["image"]), "likelihood": likelihood, **given})


def plain_variances(variances: dict[str, float]) -> dict[str, float | str]:
    """Return variances for JSON, which has no infinity: "inf" stands for it, which `float` reads."""
    return {name: "inf" if value == math.inf else value for name, value in variances.items()}
