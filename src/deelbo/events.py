"""Events that long jobs report to their caller, for progress bars and logs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Note:
    """A sentence for the user.

    Args:
        text: The sentence.
    """

    text: str


@dataclass(frozen=True)
class Stage:
    """Progress of a stage with a known length, such as reading images.

    Args:
        name: What is being done.
        done: How many items are done.
        total: How many items there are.
    """

    name: str
    done: int
    total: int


@dataclass(frozen=True)
class TrainingPlanned:
    """Training is about to begin.

    Args:
        summary: A sentence about model, data and method.
        steps: Number of optimizer steps of all candidates together.
        batch_size: Number of examples in a step.
    """

    summary: str
    steps: int
    batch_size: int


@dataclass(frozen=True)
class CandidateEvent:
    """Something that happened to one candidate of a search.

    Args:
        learning_rate: The candidate's learning rate.
        step: Number of its optimizer steps so far.
    """

    learning_rate: float
    step: int


class StepTaken(CandidateEvent):
    """One optimizer step of a candidate is done."""


class ObjectiveAwaited(CandidateEvent):
    """The objective of a candidate is about to be estimated."""


@dataclass(frozen=True)
class ObjectiveEstimated(CandidateEvent):
    """The objective of a candidate was estimated.

    Args:
        learning_rate: The candidate's learning rate.
        step: Number of its optimizer steps so far.
        per_example: The training objective divided by the method's scale, so that it compares with a mean loss.
    """

    per_example: float


@dataclass(frozen=True)
class SourceStepTaken:
    """One step of the training on a source task is done.

    Args:
        step: Number of steps so far.
        steps: Number of steps in all.
        loss: The loss of this step.
        snapshots: Number of snapshots of the weights so far.
    """

    step: int
    steps: int
    loss: float
    snapshots: int


@dataclass(frozen=True)
class ComparisonState:
    """Progress of a comparison of methods.

    Args:
        comparison: The comparison, which knows its finished runs.
        running: Description and finished fraction (None if unknown) of each training run that is in progress.
        seconds_left: Estimated time until the end; None if unknown.
    """

    comparison: Any
    running: list[tuple[str, float | None]]
    seconds_left: float | None


Event = Note | Stage | TrainingPlanned | CandidateEvent | SourceStepTaken | ComparisonState
Listener = Callable[[Event], None]


def ignore(event: Event) -> None:
    """Listen to events without doing anything."""


def stage(listener: Listener, name: str) -> Callable[[int, int], None]:
    """Return a callback for (done, total) that passes each call on as a `Stage` of this name."""
    return lambda done, total: listener(Stage(name, done, total))
