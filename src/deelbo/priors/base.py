"""The registry of priors, by whose names a run makes its prior."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from torch import nn

from deelbo._head import Head
from deelbo._registry import Registry
from deelbo.priors.gaussian import GaussianPrior, PriorGroup

PRIORS: Registry[type[PriorRecipe]] = Registry("prior", "deelbo.priors")


@dataclass(frozen=True)
class SearchAxis:
    """One number of a prior that grid search and Bayesian optimisation vary.

    Args:
        groups: Groups of the prior that share the number.
        is_variance: Whether the number is a variance up to a factor (lambda of PTYL, from 1 to 1e9), or a strength
            alpha/N of regularisation, whose variance is 1/alpha.
    """

    groups: tuple[str, ...]
    is_variance: bool = False


class PriorRecipe(ABC):
    """A recipe that makes a prior for any network.

    Args:
        file: Path of the file that the prior is read from; "" for a prior that needs none.
        rank: Number of deviations of the source task that PTYL uses.
        diagonal: Number that PTYL adds to the diagonal of its covariance.

    Raises:
        ValueError: If a file is given to a prior that takes none, or missing for a prior that needs one.
    """

    name: ClassVar[str]
    takes_file: ClassVar[bool] = False
    search_axes: ClassVar[tuple[SearchAxis, ...]] = ()  # empty if searches cannot be used with this prior

    def __init__(self, file: str = "", rank: int = 5, diagonal: float = 0.1) -> None:
        if bool(file) != self.takes_file:
            problem = f"needs a file, as in {self.name}:FILE" if self.takes_file else f"takes no file ({file})"
            raise ValueError(f"prior={self.name!r} {problem}")
        self.file, self.rank, self.diagonal = file, rank, diagonal

    @abstractmethod
    def make(self, network: nn.Module, head: Head = None) -> GaussianPrior:
        """Return the prior of a network at its initial state.

        Args:
            network: The network with its pretrained weights.
            head: Name of the classifier; found automatically in most networks if None.
        """

    def start(self, network: nn.Module, head: Head = None) -> None:
        """Put the network where training should start, if that is elsewhere than its pretrained weights."""

    def fingerprint(self) -> str | None:
        """Return a hash of the content of the prior's file; None for a prior without one."""
        return None


def make_recipe(prior: str, rank: int = 5, diagonal: float = 0.1) -> PriorRecipe:
    """Return the recipe of a prior, written as NAME or NAME:FILE.

    Args:
        prior: Name of the prior, with its file if it needs one, such as "l2-sp" or "ptyl:source.safetensors".
        rank: Number of deviations of the source task that PTYL uses.
        diagonal: Number that PTYL adds to the diagonal of its covariance.

    Raises:
        ValueError: If the name is unknown, or a file is missing or not needed.
    """
    name, _, file = prior.partition(":")
    return PRIORS[name](file, rank, diagonal)


def short_name(prior: str) -> str:
    """Return NAME or NAME:FILE of a prior without the folders and the ending of the file."""
    name, _, file = prior.partition(":")
    return f"{name}:{Path(file).stem}" if file else name


def backbone_and_head(backbone: PriorGroup | None, classifier: dict[str, nn.Parameter]) -> GaussianPrior:
    """Return a prior with a group for the backbone (unless it is frozen) and N(0, tau I) for the classifier, if any."""
    groups = {} if backbone is None else {"backbone": backbone}
    return GaussianPrior({**groups, **({"head": PriorGroup(classifier)} if classifier else {})})
