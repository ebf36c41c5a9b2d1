"""The search for a learning rate: candidates are compared by the training objective, and the best ones continue.

"grid" trains every candidate to the end. "race" compares all candidates after 10 % of the steps, and trains the best
one to the end. Before the comparison each candidate cools down: its rate goes to zero over 3 % more steps, which are
discarded afterwards. Otherwise a large rate would look worse than it is, because of noise that the end of its cosine
schedule removes. With three rates the race costs 3 * (0.10 + 0.03) + 0.90 = 1.29 full runs instead of 3; measurements
are in `docs/results.md`.
"""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from deelbo import events
from deelbo._distributed import active
from deelbo._files import read_tensors, write_tensors
from deelbo._interrupt import DeferredInterrupt
from deelbo._processes import any_process
from deelbo.errors import AllDivergedError
from deelbo.training.loop import Candidate, MakeCandidate, State
from deelbo.training.settings import Settings

FIRST_STEPS = 12


@dataclass(frozen=True)
class Rung:
    """A step at which candidates are compared.

    Args:
        step: Number of steps before the comparison.
        survivors: Number of candidates that continue (at the last rung: that win).
        cooling: Number of steps over which each candidate cools down before the comparison.
    """

    step: int
    survivors: int
    cooling: int = 0


def rungs(settings: Settings) -> list[Rung]:
    """Return the rungs of the settings' search; the last one is at the end of training."""
    number, steps = len(settings.learning_rates), settings.steps
    last = Rung(steps, 1)
    # The first steps with a new classifier tell nothing, however short the run.
    early = Rung(max(FIRST_STEPS, round(0.1 * steps)), 1, max(FIRST_STEPS // 3, round(0.03 * steps)))
    if settings.lr_search == "grid" or number == 1 or early.step + early.cooling >= steps:
        return [last]
    return [early, last]


def planned_steps(settings: Settings) -> int:
    """Return how many steps a search takes if no candidate diverges."""
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
    """States in files, from which an interrupted run continues.

    Args:
        folder: Folder of the files.
        writes: Whether this process writes the files; one of several processes does.
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

    The search has no state beside those of its candidates: started again on the same store, it repeats its decisions
    from the recorded values and continues the candidate that was interrupted.

    Args:
        settings: Settings of the run.
        make_candidate: Function that returns the candidate of a learning rate at the initial state.
        store: Store of the candidates' states.
        checkpoint_seconds: Seconds between two checkpoints, from which an interrupted search continues.
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
        self.values: dict[int, dict[float, float]] = {}  # objective by step of the rung and learning rate
        self._group_interrupt: DeferredInterrupt | None = None

    def run(self) -> tuple[float, State]:
        """Return the best learning rate and the final state of its candidate.

        Raises:
            AllDivergedError: If every candidate diverged.
        """
        if not active():
            return self._run()
        with DeferredInterrupt(insistent=True) as self._group_interrupt:
            found = self._run()
        self._group_interrupt.deliver()
        return found

    def _run(self) -> tuple[float, State]:
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
        stored = self.store.get(rate)
        if stored is not None and str(rung.step) in stored[1]["values"]:
            return _number(stored[1]["values"][str(rung.step)])
        candidate = self.make_candidate(rate)
        values: dict[str, float | None] = {}
        if stored is not None:
            candidate.restore(stored)
            values = stored[1]["values"]
        final = rung.step == self.settings.steps
        with DeferredInterrupt(insistent=True) as interrupt:  # Ctrl-C waits for the end of a step
            self._train(candidate, rung.step, values, interrupt)
            before = candidate.state()
            if not final:
                self._cool(candidate, rung, before, values, interrupt)
        interrupt.deliver()  # a Ctrl-C after the last step; the next start repeats what was not saved
        self._stop_together()
        self.listener(events.ObjectiveAwaited(rate, rung.step))
        value = candidate.objective(final)
        values[str(rung.step)] = value if value > -math.inf else None
        if not final:
            clock = candidate.clock
            candidate.restore(before)
            candidate.clock = clock
        self._keep(candidate, values)
        candidate.accelerator.wait_for_everyone()  # the other processes read what one process wrote
        self._stop_together()
        self.listener(events.ObjectiveEstimated(rate, rung.step, value / candidate.method.objective_scale))
        return value

    def _stop_together(self) -> None:
        """Stop all of several processes if a Ctrl-C has come to one of them; a single process stops at once anyway."""
        if self._group_interrupt is not None and any_process(self._group_interrupt.requested):
            raise KeyboardInterrupt

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
            if any_process(interrupt.requested):
                candidate.restore(before)
                self._keep(candidate, values)
                raise KeyboardInterrupt

    def _train(
        self, candidate: Candidate, until: int, values: dict[str, float | None], interrupt: DeferredInterrupt
    ) -> None:
        saved = time.monotonic()
        for now in candidate.advance(until):
            self.listener(events.StepTaken(candidate.learning_rate, now))
            # A Ctrl-C that has come to one of several processes stops all of them after the same step.
            stops = any_process(interrupt.requested)
            if stops or time.monotonic() - saved > self.checkpoint_seconds:
                self._keep(candidate, values)
                saved = time.monotonic()
            if stops:
                raise KeyboardInterrupt

    def _keep(self, candidate: Candidate, values: dict[str, float | None]) -> None:
        tensors, notes = candidate.state()
        self.store.put(candidate.learning_rate, (tensors, {**notes, "values": dict(values)}))


def _number(value: float | None) -> float:
    return -math.inf if value is None else value  # JSON has no infinity
