"""How long a run takes: said before it starts, and kept to if the user gave a time instead of a number of steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any

from deelbo import events
from deelbo._wording import duration
from deelbo.training.loop import Candidate
from deelbo.training.method import METHODS
from deelbo.training.search import planned_steps
from deelbo.training.throughput import Clock, agreed, measure
from deelbo.training.time_budget import Plan, Work, fit, parse_time, shown_time

LONG = 3600.0  # seconds after which an estimate comes with advice
START_SECONDS = 5.0  # for the regressions on the frozen features, and for libraries that are imported then
MEASURING = 2.0  # seconds for measuring a run whose number of steps is given
MEASURING_SHARE = 0.03  # of a given time
MOST_STEPS = 50  # to measure
MEASURED_SHARE = 0.05  # of the steps of a run whose number of steps is given


@dataclass
class Timing:
    """Measures a run before it starts, says how long it takes, and lays it out in a given time.

    Args:
        time: Time for the whole run, such as "10m"; None if the number of steps is given.
        test_examples: Number of examples that the run is tested on.
        folds: Number of folds by which it is calibrated.
        reported: Whether there will be a report.
        advises: Whether a long run comes with the advice to give a time.
        clock: Function that returns seconds; the time of the run counts from when this object is made.

    Raises:
        ValueError: If the time cannot be read.
    """

    time: str | None = None
    test_examples: int = 0
    folds: int = 0
    reported: bool = False
    advises: bool = False
    clock: Clock = monotonic

    def __post_init__(self) -> None:
        self._began = self.clock()
        if self.time is not None:
            self.time = shown_time(parse_time(self.time))

    @property
    def passed(self) -> float:
        """Seconds since the beginning."""
        return self.clock() - self._began

    def estimate(self, work: Work, make_candidate: Callable[[], Candidate]) -> Plan:
        """Measure a candidate, which is thrown away, and return how long a run of the settings' steps would take.

        Args:
            work: What there is to do.
            make_candidate: Function that returns the candidate.
        """
        settings = work.settings
        most = min(MOST_STEPS, math.ceil(MEASURED_SHARE * planned_steps(settings)))
        costs = measure(make_candidate(), MEASURING, most, self.clock)
        seconds = START_SECONDS + work.seconds_of_start(costs) + work.seconds_after_start(costs)
        return Plan(None, settings.steps, costs.step, self.passed + seconds)

    def lay_out(self, work: Work, make_candidate: Callable[[], Candidate], accelerator: Any) -> Plan:
        """Measure a candidate, which is thrown away, and return the plan of a run with a given time.

        It is the last thing before the first step, since what was decided before may change what a step costs: with the
        statistics of batches, for example, it takes longer than with those of the pretrained network.

        Args:
            work: What is left to do.
            make_candidate: Function that returns the candidate.
            accelerator: Accelerate's object; all processes make the same plan.

        Raises:
            ValueError: If the time is too short.
        """
        assert self.time is not None
        limit, most = MEASURING_SHARE * parse_time(self.time), min(MOST_STEPS, work.settings.steps)
        costs = measure(make_candidate(), limit, most, self.clock)
        passed = agreed([round(1000 * self.passed)], accelerator)[0] / 1000
        return fit(self.time, passed, work, costs)

    def announce(self, network: str, work: Work, seconds: float | None, listener: events.Listener) -> None:
        """Tell what will be trained, and how long it will take.

        Args:
            network: Name and size of the network.
            work: What there is to do.
            seconds: How long it will take; None if that is not known.
            listener: Called with the events.
        """
        settings, number = work.settings, planned_steps(work.settings)
        batch_size = min(settings.batch_size, work.num_data)
        length = f"{settings.steps} steps of {batch_size}" if settings.steps else "no training steps"
        summary = f"{network}; {settings.method}, {length}"
        if (rates := len(settings.learning_rates)) > 1:
            summary += f", {rates} learning rates: {number} steps in all"
        if seconds is not None:
            summary += f"; this takes about {duration(seconds)}"
        listener(events.TrainingPlanned(summary, number, batch_size))
        if seconds is not None and seconds > LONG and self.advises and self.time is None:
            listener(events.Note("this is long: time=30m, for example, takes as many steps as fit into 30 minutes"))


def check_time(time: str | None, settings: Mapping[str, Any]) -> None:
    """Refuse a time beside other ways to say how long a run is.

    Args:
        time: The time that the user gave, if any.
        settings: Fields of `Settings` that the user chose.

    Raises:
        ValueError: If the two contradict each other.
    """
    if time is None:
        return
    parse_time(time)
    if "steps" in settings:
        raise ValueError(
            f"time={time!r} contradicts steps={settings['steps']}: the time decides how many steps are taken; give one"
        )
    method = settings.get("method", "de-elbo")
    if not METHODS[method].trains:
        raise ValueError(f"time={time!r} is of no use for method={method}, which takes no training steps")
