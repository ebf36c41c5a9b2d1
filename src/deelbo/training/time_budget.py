"""Time as the budget of a run: how long its parts take, and how many steps fit into a given time.

All of it is arithmetic on a few measured numbers (`throughput.py` measures them). The steps of all candidates, their
comparisons, the final estimate of the objective, the temperature, the folds, the test and the report are counted.
"""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass, replace
from typing import Any

from deelbo.training.batches import steps_per_epoch
from deelbo.training.loop import EARLY_EXAMPLES
from deelbo.training.method import METHODS
from deelbo.training.search import planned_steps, rungs
from deelbo.training.settings import Settings
from deelbo.training.start import MOST_EXAMPLES

LEAST_STEPS = 20  # fewer tell nothing
OBJECTIVE_SHARE = 0.1  # of the time, for the final estimate of the objective, which may use fewer examples then
LEAST_EXAMPLES = 100  # for that estimate
EARLY_ESTIMATES = 3  # of a posterior's objective in an early comparison, at growing scales
RESERVE = 0.02  # of the time, for checkpoints and what is not counted
REPORT_SECONDS = 2.0  # for the report
_FORM = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?")


def parse_time(text: str) -> float:
    """Return the seconds that a text such as "90s", "10m" or "1h30m" stands for.

    Raises:
        ValueError: If the text is something else, such as a number without a unit.

    Example:
        >>> from deelbo.training.time_budget import parse_time
        >>> parse_time("90s"), parse_time("1h30m")
        (90.0, 5400.0)
    """
    match = _FORM.fullmatch(text) if isinstance(text, str) else None
    hours, minutes, seconds = (float(part or 0) for part in match.groups()) if match else (0.0, 0.0, 0.0)
    if (total := 3600 * hours + 60 * minutes + seconds) <= 0:
        raise ValueError(f"time={text!r}: write hours, minutes or seconds with their unit, such as 90s, 10m or 1h30m")
    return total


def shown_time(seconds: float) -> str:
    """Return the text that `parse_time` reads as so many seconds, rounded up to whole ones."""
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return "".join(f"{n}{unit}" for n, unit in ((hours, "h"), (minutes, "m"), (rest, "s")) if n) or "0s"


@dataclass(frozen=True)
class Costs:
    """Measured seconds.

    Args:
        step: Of a training step.
        forward: Of the network's output for an example, in eval mode.
        objective: Of an estimate of the objective with one draw, for an example.
        epoch: Of what the method does at the end of an epoch, for an example.
        draw: Of an estimate of the objective with one draw, for any number of examples.
    """

    step: float
    forward: float
    objective: float
    epoch: float = 0.0
    draw: float = 0.0


@dataclass(frozen=True)
class Work:
    """What a run has to do.

    Args:
        settings: Settings of the run.
        num_data: Number of training examples.
        batch_norm: How batch normalisation is treated; "auto" before that was decided, "" for a network without it.
        test_examples: Number of test examples.
        folds: Number of folds by which the run is calibrated.
        calibrated: Whether a temperature is found on the training set.
        reported: Whether there will be a report.
        objective_examples: Number of examples of the final estimate of the objective; all if None.
    """

    settings: Settings
    num_data: int
    batch_norm: str = ""
    test_examples: int = 0
    folds: int = 0
    calibrated: bool = True
    reported: bool = False
    objective_examples: int | None = None

    def seconds_of_start(self, costs: Costs) -> float:
        """Return how long the features of the frozen network take, before the first step."""
        number = self.num_data if self.settings.head_start == "probe" else min(self.num_data, MOST_EXAMPLES)
        passes = 3 if self.batch_norm in ("auto", "batch") else 1
        return passes * number * costs.forward

    def seconds_of_steps(self, costs: Costs) -> float:
        """Return how long the training steps of all candidates take, with what is done after each epoch."""
        steps = planned_steps(self.settings)
        epochs = steps // steps_per_epoch(self.num_data, self.settings.batch_size)
        return steps * costs.step + epochs * self.num_data * costs.epoch

    def seconds_of_objectives(self, costs: Costs) -> float:
        """Return how long the comparisons of the candidates take, the last of which is the final objective."""
        draws = METHODS[self.settings.method].draws_weights
        few = min(self.num_data, EARLY_EXAMPLES)
        refresh = costs.forward if self.batch_norm in ("auto", "batch") else 0.0
        early = rungs(self.settings)[:-1]
        alive, total = len(self.settings.learning_rates), 0.0
        for rung in early:
            total += alive * (EARLY_ESTIMATES if draws else 1) * (few * (costs.objective + refresh) + costs.draw)
            alive = min(alive, rung.survivors)
        examples = self.objective_examples or self.num_data
        anew = max(examples, min(self.num_data, MOST_EXAMPLES))
        estimate = (self.settings.samples if draws else 1) * (examples * costs.objective + few * refresh + costs.draw)
        return total + alive * (estimate + anew * refresh)

    def seconds_of_rest(self, costs: Costs) -> float:
        """Return how long all takes that follows the search: temperature, folds, test and report."""
        temperature = min(self.num_data, MOST_EXAMPLES) if self.calibrated else 0
        own = (temperature + self.test_examples) * costs.forward + self.reported * REPORT_SECONDS
        if not self.folds:
            return own
        settings = replace(self.settings, learning_rates=self.settings.learning_rates[:1])
        fold = Work(settings, self.num_data - self.num_data // self.folds, self.batch_norm)
        outputs = 2 * self.num_data * costs.forward  # for the factor of the fold, and for what it left out
        return own + self.folds * (fold.seconds_of_start(costs) + fold.seconds_after_start(costs) + outputs)

    def seconds_after_start(self, costs: Costs) -> float:
        """Return how long the run takes from its first step to its end."""
        return self.seconds_of_steps(costs) + self.seconds_of_objectives(costs) + self.seconds_of_rest(costs)


@dataclass(frozen=True)
class Plan:
    """How a run is laid out in time; it is made once, and a continued run keeps it.

    Args:
        time: The time that the user gave, such as "10m"; None if the number of steps was given instead.
        steps: Number of steps of a full run.
        seconds_per_step: Measured seconds of a training step.
        seconds: Seconds that the whole run was expected to take, from its beginning.
        objective_examples: Number of examples of the final estimate of the objective; all if None.
    """

    time: str | None
    steps: int
    seconds_per_step: float
    seconds: float
    objective_examples: int | None = None

    def seconds_left(self, done: float) -> float:
        """Return the seconds that are left after so many steps of all candidates together."""
        return max(0.0, self.seconds - done * self.seconds_per_step)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


def fit(time: str, passed: float, work: Work, costs: Costs) -> Plan:
    """Return the plan with as many steps as fit into a time, and no more than the settings have.

    Args:
        time: The time for the whole run, such as "10m".
        passed: Seconds that have passed already.
        work: What is left to do, with the largest number of steps.
        costs: Measured seconds.

    Raises:
        ValueError: If fewer than `LEAST_STEPS` fit; the message says how much time is needed.
    """
    left = (1 - RESERVE) * parse_time(time) - passed
    most, work = work.settings.steps, _with_affordable_objective(work, costs, left)

    def seconds(steps: int) -> float:
        return replace(work, settings=replace(work.settings, steps=steps)).seconds_after_start(costs)

    least = min(LEAST_STEPS, most)
    if seconds(least) > left:
        needed = shown_time(1.05 * (passed + seconds(least)) / (1 - RESERVE))
        raise ValueError(
            f"time={time!r} is too short: {passed:.3g} s have passed before the first step, a step takes "
            f"{costs.step:.3g} s, and {least} of them with all that follows need time={needed} in all"
        )
    steps, above = least, most + 1  # the first fits, the second is too many
    while above - steps > 1:
        middle = (steps + above) // 2
        steps, above = (middle, above) if seconds(middle) <= left else (steps, middle)
    return Plan(time, steps, costs.step, passed + seconds(steps), work.objective_examples)


def _with_affordable_objective(work: Work, costs: Costs, left: float) -> Work:
    """Let the final objective use fewer examples if all would take too much of the time, and never very few."""
    race = len(rungs(work.settings)) > 1
    candidates = 1 if race else len(work.settings.learning_rates)
    draws = work.settings.samples if METHODS[work.settings.method].draws_weights else 1
    affordable = OBJECTIVE_SHARE * left / max(1e-12, candidates * draws * costs.objective)
    if affordable >= work.num_data:
        return work
    return replace(work, objective_examples=min(work.num_data, max(LEAST_EXAMPLES, int(affordable))))
