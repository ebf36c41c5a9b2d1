"""The search for a learning rate: candidates go from rung to rung, and the training objective decides who goes on.

"grid" has one rung, at the end. "race" compares all candidates after 7 % of the steps, the two best after 25 %, and
lets the better one finish. Before a comparison each cools down: its rate goes to zero over some more steps, on a branch
that is thrown away. Without, a large rate looks worse than it is, for the noise that its cosine would have removed in
the end. And it is compared by the objective at the best scale, since the scale starts tiny and lags behind the means.
That is 4 * (0.07 + 0.03) + 2 * (0.18 + 0.04) + 0.75 = 1.59 full runs instead of 4; `docs/results.md`
has what was measured.
"""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from deelbo import events
from deelbo._files import read_tensors, write_tensors
from deelbo._interrupt import DeferredInterrupt
from deelbo.errors import AllDivergedError
from deelbo.training.loop import Candidate, MakeCandidate, State
from deelbo.training.settings import Settings

FIRST_STEPS = 20


@dataclass(frozen=True)
class Rung:
    """Where candidates stop and are compared.

    Args:
        step: After how many steps.
        survivors: How many go on (or, at the last rung, win).
        cooling: Steps over which they cool down for the comparison.
    """

    step: int
    survivors: int
    cooling: int = 0


def rungs(settings: Settings) -> list[Rung]:
    """Return the rungs of the settings' search; the last one is at the end."""
    number, steps = len(settings.learning_rates), settings.steps
    last = Rung(steps, 1)
    # The first steps from a new classifier say nothing, however short the run.
    begin = max(FIRST_STEPS, round(0.1 * steps))
    early = Rung(begin - round(0.3 * begin), max(2, number // 4), round(0.3 * begin))
    later = Rung(round(0.25 * steps), 1, max(1, round(0.04 * steps)))
    if settings.lr_search == "grid" or number == 1 or early.step >= later.step:
        return [last]
    return [early, later, last] if number > 2 else [later, last]


def planned_steps(settings: Settings) -> int:
    """Return how many steps a search takes if nobody diverges."""
    alive, before, total = len(settings.learning_rates), 0, 0
    for rung in rungs(settings):
        total += alive * (rung.step - before + rung.cooling)
        alive, before = min(alive, rung.survivors), rung.step
    return total


class Store(Protocol):
    """Keeps the states of the candidates."""

    def put(self, rate: float, state: State) -> None:
        """Keep a candidate's state."""

    def get(self, rate: float) -> State | None:
        """Return a candidate's state, if there is one."""


class MemoryStore:
    """States in memory, for a run without a folder."""

    def __init__(self) -> None:
        self._states: dict[float, State] = {}

    def put(self, rate: float, state: State) -> None:
        """Keep a candidate's state."""
        self._states[rate] = state

    def get(self, rate: float) -> State | None:
        """Return a candidate's state, if there is one."""
        return self._states.get(rate)


class FolderStore:
    """States in files, so that an interrupted run goes on where it was.

    Args:
        folder: Where they are.
        writes: False in all processes but one.
    """

    def __init__(self, folder: Path, writes: bool = True) -> None:
        self.folder, self.writes = folder, writes

    def put(self, rate: float, state: State) -> None:
        """Keep a candidate's state; a crash leaves the previous one."""
        tensors, notes = state
        if self.writes:
            write_tensors(self._path(rate), tensors, notes)

    def get(self, rate: float) -> State | None:
        """Return a candidate's state, if there is one.

        Raises:
            ValueError: If its file is damaged.
        """
        path = self._path(rate)
        return read_tensors(path) if path.exists() else None

    def _path(self, rate: float) -> Path:
        return self.folder / f"learning-rate-{rate!r}.safetensors"


class Search:
    """Finds the learning rate with the best training objective.

    Its progress is nothing but the candidates' own states, so a search that is started again on the same store repeats
    its decisions from the recorded values and goes on in the middle of a candidate.

    Args:
        settings: Of the run.
        make_candidate: Makes the candidate of a learning rate at the initial state.
        store: Keeps states.
        checkpoint_seconds: How often a state is kept while training.
        listener: Called with the events of the search, for progress bars.
    """

    def __init__(
        self,
        settings: Settings,
        make_candidate: MakeCandidate,
        store: Store,
        checkpoint_seconds: float = 60.0,
        listener: events.Listener = events.ignore,
    ) -> None:
        self.settings, self.make_candidate, self.store = settings, make_candidate, store
        self.checkpoint_seconds, self.listener = checkpoint_seconds, listener
        self.values: dict[int, dict[float, float]] = {}  # by the step of the rung, by learning rate

    def run(self) -> tuple[float, State]:
        """Return the best learning rate and the final state of its candidate.

        Raises:
            AllDivergedError: If every candidate diverged.
        """
        alive = list(self.settings.learning_rates)
        for rung in rungs(self.settings):
            values = self.values[rung.step] = {rate: self._reach(rate, rung) for rate in alive}
            for rate, value in values.items():
                if value == -math.inf:
                    warnings.warn(f"learning rate {rate:g} diverged and is dropped", stacklevel=3)
            alive = sorted((rate for rate in alive if values[rate] > -math.inf), key=lambda rate: -values[rate])
            alive = alive[: rung.survivors]
            if not alive:
                raise AllDivergedError(
                    "every learning rate diverged (infinite or undefined objective); try smaller ones than "
                    + ", ".join(f"{rate:g}" for rate in self.settings.learning_rates)
                )
        state = self.store.get(alive[0])
        assert state is not None
        return alive[0], state

    def _reach(self, rate: float, rung: Rung) -> float:
        """Bring a candidate to a rung and return its objective there."""
        kept = self.store.get(rate)
        if kept is not None and str(rung.step) in kept[1]["values"]:
            return _number(kept[1]["values"][str(rung.step)])
        candidate = self.make_candidate(rate)
        values: dict[str, float | None] = {}
        if kept is not None:
            candidate.restore(kept)
            values = kept[1]["values"]
        final = rung.step == self.settings.steps
        with DeferredInterrupt(insistent=True) as interrupt:  # between two steps: a step cut off must not be saved
            self._train(candidate, rung.step, values, interrupt)
            before = candidate.state()
            if not final:
                self._cool(candidate, rung, before, values, interrupt)
        interrupt.deliver()  # one that came after the last step; the next start repeats what is not kept
        self.listener(events.ObjectiveAwaited(rate, rung.step))
        value = candidate.objective(final)
        values[str(rung.step)] = value if value > -math.inf else None
        if not final:
            clock = candidate.clock
            candidate.restore(before)
            candidate.clock = clock
        self._keep(candidate, values)
        candidate.accelerator.wait_for_everyone()  # the others read what one process wrote
        self.listener(events.ObjectiveEstimated(rate, rung.step, value / candidate.method.objective_scale))
        return value

    def _cool(
        self,
        candidate: Candidate,
        rung: Rung,
        before: State,
        values: dict[str, float | None],
        interrupt: DeferredInterrupt,
    ) -> None:
        candidate.cool(rung.cooling)
        for now in candidate.advance(rung.step + rung.cooling):
            self.listener(events.StepTaken(candidate.learning_rate, now))
            if interrupt.requested:
                candidate.restore(before)
                self._keep(candidate, values)
                raise KeyboardInterrupt

    def _train(
        self, candidate: Candidate, until: int, values: dict[str, float | None], interrupt: DeferredInterrupt
    ) -> None:
        saved = time.monotonic()
        for now in candidate.advance(until):
            self.listener(events.StepTaken(candidate.learning_rate, now))
            if interrupt.requested or time.monotonic() - saved > self.checkpoint_seconds:
                self._keep(candidate, values)
                saved = time.monotonic()
            if interrupt.requested:
                raise KeyboardInterrupt

    def _keep(self, candidate: Candidate, values: dict[str, float | None]) -> None:
        tensors, notes = candidate.state()
        self.store.put(candidate.learning_rate, (tensors, {**notes, "values": dict(values)}))


def _number(value: float | None) -> float:
    return -math.inf if value is None else value  # JSON has no infinity
