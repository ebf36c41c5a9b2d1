"""What an entry is: a table or figure of the paper, which plans its runs, makes itself and judges its claims."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from deelbo._registry import Registry
from deelbo.reproduce.plan import PlannedRun
from deelbo.reproduce.scales import Scale

if TYPE_CHECKING:
    from deelbo.reproduce.setup import Setup

ENTRIES: Registry[Entry] = Registry("name", "deelbo.reproduce.entries")

HOLDS, PARTLY, FAILS = "holds", "holds partly", "does not hold"


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, judged by what was measured.

    Args:
        text: The claim.
        verdict: "holds", "holds partly" or "does not hold".
        evidence: The numbers by which it was judged.
    """

    text: str
    verdict: str
    evidence: str


def judge(text: str, outcomes: Sequence[bool], evidence: str) -> Claim:
    """Return a claim that holds if all of some outcomes do, partly if some do.

    Args:
        text: The claim.
        outcomes: Whether it is so in each case that was measured; at least one.
        evidence: The numbers by which it was judged.

    Example:
        >>> from deelbo.reproduce.entry import judge
        >>> judge("DE-ELBO is faster", [True, False], "1 min against 2 min, 3 min against 2 min").verdict
        'holds partly'
    """
    return Claim(text, HOLDS if all(outcomes) else PARTLY if any(outcomes) else FAILS, evidence)


@dataclass(frozen=True)
class Reproduction:
    """A table or figure that was made.

    Args:
        numbers: What was measured, for the JSON file.
        figure: Figure of matplotlib; None for a table.
        table: Table in Markdown; "" if there is none.
        claims: Claims of the paper, judged.
        notes: What was left out, and why.
    """

    numbers: dict[str, Any]
    figure: Any = None
    table: str = ""
    claims: list[Claim] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Entry(ABC):
    """A table or figure of the paper.

    Attributes:
        title: What it shows, in a line.
        compares: Whether its runs are those of `compare`, which may have a mixed precision.
    """

    title: str = ""
    compares: bool = False

    @abstractmethod
    def trials(self, scale: Scale) -> list[PlannedRun]:
        """Return the training runs that the entry needs at a scale, without reading any data."""

    @abstractmethod
    def data(self, scale: Scale) -> list[str]:
        """Return the names of the datasets that the entry uses at a scale."""

    def models(self, scale: Scale) -> list[str]:
        """Return the models that the entry uses without training them."""
        return []

    def minutes(self, scale: Scale) -> float:
        """Return the minutes of work beside training runs on one thread of a laptop."""
        return 0.0

    @abstractmethod
    def make(self, setup: Setup) -> Reproduction:
        """Make the runs that are missing, and then the table or figure.

        Raises:
            ValueError: If data that the entry needs are missing.
        """
