"""The batches of training steps: read in this process, or by worker processes if a step would wait for them too long.

A batch is a function of the seed and the step, and so is what is random after it, such as dropout: a worker seeds the
step, reads the examples, and hands over the state of its random generators with the batch. So the run is the same, bit
for bit, with any number of workers, and can be continued at any step with another one.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from deelbo import events
from deelbo._seeds import mix, random_state, seed_step, set_random_state
from deelbo._wording import counted
from deelbo.training.batches import Inputs, collated, indices_of_step, on_device, prepare
from deelbo.training.settings import Settings

if TYPE_CHECKING:
    from accelerate import Accelerator

DECIDING_STEPS = 4  # after the first, which is slower
LARGEST_SHARE = 0.2  # of a step that may wait for data before workers take over
MOST_WORKERS = 8
AHEAD = 2  # batches that each worker reads ahead


class StepBatches:
    """Gives the batch of each step.

    Args:
        dataset: Training examples, with augmentation if there is any.
        settings: Settings of the run: size of a batch, and seed.
        accelerator: Accelerate's object for device and processes; each process reads its part of a batch.
        workers: Number of worker processes, 0 for none; None to start some if the first steps wait for their data.
        listener: Called with a note when workers are started.
        clock: Function that returns seconds.
    """

    def __init__(
        self,
        dataset: Dataset,
        settings: Settings,
        accelerator: Accelerator,
        workers: int | None = 0,
        *,
        listener: events.Listener = events.ignore,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.steps = _Steps(dataset, settings, accelerator.process_index, accelerator.num_processes)
        self.device, self.workers = accelerator.device, workers or 0
        self._undecided = workers is None and default_workers() > 0
        self._listener, self._clock = listener, clock
        self._begun: list[float] = []  # when each of the first steps began
        self._waited: list[float] = []  # how long each of them waited
        self._iterator: Iterator[Any] | None = None
        self._next = 0

    def take(self, step: int) -> tuple[Inputs, Tensor]:
        """Return inputs and labels of a step, and leave the random generators as the step's examples leave them."""
        begin = self._clock()
        if self._undecided:
            self._decide(begin)
        if self.workers:
            batch, state = self._from_workers(step)
            seed_step(self.steps.own_seed, step)  # the device's generators, too
            set_random_state(state)
        else:
            batch = self.steps.read(step)
            prepare(self.steps.dataset, self.steps.indices(step + 1))
        if self._undecided:
            self._waited.append(self._clock() - begin)
        return on_device(batch, self.device)

    def close(self) -> None:
        """End the workers."""
        self._iterator = None  # its end is theirs

    def _decide(self, now: float) -> None:
        """After a few steps, start workers if too much of their time was spent waiting for data."""
        self._begun.append(now)
        if len(self._begun) < DECIDING_STEPS + 2:
            return
        self._undecided = False
        share = sum(self._waited[1:]) / max(1e-9, now - self._begun[1])
        if share > LARGEST_SHARE:
            self.workers = default_workers()
            names = counted(self.workers, "worker process")
            self._listener(events.Note(f"{share:.0%} of a step waits for data: {names} will read them"))

    def _from_workers(self, step: int) -> tuple[Any, Any]:
        if self._iterator is None or step != self._next:  # another candidate, or one that went back
            self.close()
            loader = DataLoader(
                self.steps,
                batch_size=None,
                sampler=range(step, sys.maxsize),
                num_workers=self.workers,
                prefetch_factor=AHEAD,
                collate_fn=_as_it_is,
                pin_memory=self.device.type == "cuda",
                worker_init_fn=_begin_worker,
                multiprocessing_context="fork" if sys.platform == "linux" else None,
                generator=torch.Generator(),  # whose numbers nobody uses
            )
            self._iterator = iter(loader)
        self._next = step + 1
        try:
            return next(self._iterator)
        except ValueError as error:  # a loader puts a worker's traceback before what went wrong
            raise ValueError(str(error).rstrip().rpartition("\n")[2].partition(": ")[2]) from error


class _Steps(Dataset):
    """A dataset whose examples are the batches of all steps, with the state of the random generators after each."""

    def __init__(self, dataset: Dataset, settings: Settings, index: int, processes: int) -> None:
        self.dataset, self.settings, self.index, self.processes = dataset, settings, index, processes

    @property
    def own_seed(self) -> int:
        """Seed of what this process draws on its own, such as dropout."""
        return self.settings.seed if self.processes == 1 else mix(self.settings.seed, self.index)

    def joint(self, step: int) -> list[int]:
        """Return the indices of the examples that all processes train on in a step."""
        number, settings = len(self.dataset), self.settings  # type: ignore[arg-type]
        return indices_of_step(number, settings.batch_size, settings.seed, step)

    def indices(self, step: int) -> list[int]:
        """Return the indices of the examples that this process trains on in a step."""
        return self.joint(step)[self.index :: self.processes]

    def read(self, step: int) -> Any:
        """Return the batch of a step, on the CPU."""
        seed_step(self.settings.seed if hasattr(self.dataset, "skip") else self.own_seed, step)
        batch = collated(self.dataset, self.joint(step), self.index, self.processes)
        if self.processes > 1:
            seed_step(self.own_seed, step)
        return batch

    def __getitem__(self, step: int) -> tuple[Any, Any]:
        return self.read(step), random_state()


def default_workers() -> int:
    """Return how many worker processes may be started without asking the user; 0 where that is not safe.

    They are forked, which only Linux does safely, and as many as this process has processors beside its own.
    """
    if sys.platform != "linux" or multiprocessing.current_process().daemon:
        return 0
    processors = len(os.sched_getaffinity(0)) // max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    return min(MOST_WORKERS, processors - 1)


def _as_it_is(batch: Any) -> Any:
    return batch  # by default a loader would turn tuples into lists, and arrays into tensors


def _begin_worker(number: int) -> None:
    """Leave Ctrl-C to the main process, which ends its workers, and end with it if it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()  # os.getppid() would be another one if it was killed before this line
    assert parent is not None
    threading.Thread(target=_end_with, args=(parent.pid,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
