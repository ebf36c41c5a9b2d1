"""Worker processes on this machine, each with its share of the threads."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from deelbo._memory import keep_memory
from deelbo.compare.engines.base import ENGINES, FAILED, RETRIES, Outcome, attempt
from deelbo.compare.problem import Trial
from deelbo.events import Event, StepTaken

PATIENCE = 30  # seconds for workers to write their checkpoints when they are told to stop


class LocalEngine:
    """Makes runs in processes on this machine; a process that dies is replaced, and its run is tried again.

    Args:
        folder: Folder of the records.
        jobs: Number of processes.
        device: "cpu" to stay off the GPU; accelerate's choice if None.
        log: File for what the workers print.
        retries: How often a run is tried again after its worker died.
    """

    def __init__(
        self, folder: Path, jobs: int = 1, device: str | None = None, log: Path | None = None, retries: int = RETRIES
    ) -> None:
        self.folder, self.slots, self.device, self.log, self.retries = folder, jobs, device, log, retries
        self._workers: list[_Worker] = []
        self._lost: dict[str, int] = {}

    def submit(self, trial: Trial) -> None:
        """Give a run to a free worker."""
        for worker in self._workers:
            if worker.trial is None:
                worker.begin(trial)
                return
        worker = _Worker(self)
        self._workers.append(worker)
        worker.begin(trial)

    def wait(self, seconds: float) -> list[Outcome]:
        """Return the runs that have ended, after so many seconds at the latest."""
        end = time.monotonic() + seconds
        while True:
            ready = wait([worker.pipe for worker in self._workers], max(0.0, end - time.monotonic()))
            outcomes = [o for worker in list(self._workers) if worker.pipe in ready for o in self._listen(worker)]
            if outcomes or time.monotonic() >= end:
                return outcomes

    def _listen(self, worker: _Worker) -> list[Outcome]:
        try:
            while worker.pipe.poll():
                message = worker.pipe.recv()
                if isinstance(message, Outcome):
                    worker.trial, worker.fraction = None, 0.0
                    return [message]
                worker.fraction = message
        except (EOFError, OSError):
            return self._replace(worker)
        return []

    def _replace(self, worker: _Worker) -> list[Outcome]:
        """Start a new worker in place of one that died, and try its run again."""
        self._workers.remove(worker)
        code = worker.end()
        trial = worker.trial
        if trial is None:
            return []
        self._lost[trial.key] = self._lost.get(trial.key, 0) + 1
        if self._lost[trial.key] > self.retries:
            why = "killed, perhaps because memory ran out" if code == -signal.SIGKILL else f"exit code {code}"
            return [Outcome(trial.key, FAILED, f"its worker died {self._lost[trial.key]} times ({why})")]
        self.submit(trial)
        return []

    def progress(self) -> dict[str, float]:
        """Return the finished fraction of each present run by key."""
        return {worker.trial.key: worker.fraction for worker in self._workers if worker.trial is not None}

    def close(self) -> None:
        """Interrupt the workers once, so that they write their checkpoints, and wait for them."""
        for worker in self._workers:
            worker.interrupt()
        end = time.monotonic() + PATIENCE
        for worker in self._workers:
            worker.process.join(max(0.0, end - time.monotonic()))
            worker.end()
        self._workers.clear()


@ENGINES.register("local", "processes on this machine")
def local_engine(folder: Path, *, device: str | None, log: Path, jobs: int, **resources: Any) -> LocalEngine:
    """Return the engine of this machine; the arguments of other engines are ignored."""
    return LocalEngine(folder, jobs, device, log)


class _Worker:
    """A worker process, the pipe to it, and the run that it makes."""

    def __init__(self, engine: LocalEngine) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, worker_end = context.Pipe()
        threads = max(1, available_threads() // engine.slots)
        arguments = (worker_end, engine.folder, engine.device, threads, engine.log)
        self.process = context.Process(target=_serve, args=arguments, daemon=True)
        # The child inherits the signal mask, so that a Ctrl-C does not end it before it has a process group of its own.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            with _environment(OMP_NUM_THREADS=str(threads)):
                self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        worker_end.close()  # so that the pipe ends with the process
        self.trial: Trial | None = None
        self.fraction = 0.0

    def begin(self, trial: Trial) -> None:
        self.trial, self.fraction = trial, 0.0
        with contextlib.suppress(OSError):  # `wait` notices a worker that has died
            self.pipe.send(trial)

    def interrupt(self) -> None:
        if self.process.pid is not None and self.process.is_alive():
            os.kill(self.process.pid, signal.SIGINT)

    def end(self) -> int | None:
        self.process.join(5)  # the pipe ends a moment before the process
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self.pipe.close()
        return self.process.exitcode


def available_threads() -> int:
    """Return how many threads this process may use: its cores, but at most OMP_NUM_THREADS."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores, int(wanted)) if wanted.isdigit() and int(wanted) > 0 else cores


@contextlib.contextmanager
def _environment(**values: str) -> Any:
    """Set environment variables for processes that are started inside the block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _serve(pipe: Connection, folder: Path, device: str | None, threads: int, log: Path | None) -> None:
    """Make runs until the pipe ends or an interrupt comes; the main function of a worker."""
    os.setpgrp()  # Ctrl-C goes to the parent, which interrupts each worker once
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a parent in the background passes on that it is ignored
    if log is not None:
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.dup2(file, sys.stdout.fileno())
        os.dup2(file, sys.stderr.fileno())
        os.close(file)
    import torch

    keep_memory()
    torch.set_num_threads(threads)
    inbox: list[Any] = []
    arrived = threading.Semaphore(0)

    def listen() -> None:
        """Notice at once when the parent dies, even in the middle of a run."""
        while True:
            try:
                inbox.append(pipe.recv())
            except (EOFError, OSError):
                os._exit(1)
            arrived.release()

    threading.Thread(target=listen, daemon=True).start()
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        while True:
            arrived.acquire()
            trial = inbox.pop(0)
            pipe.send(attempt(trial, folder, device, _Fractions(pipe, trial)))
    except KeyboardInterrupt:
        os._exit(130)


class _Fractions:
    """Sends the finished fraction of a run to the parent, once a second."""

    def __init__(self, pipe: Connection, trial: Trial) -> None:
        from deelbo.training.search import planned_steps

        self.pipe, self.total, self.done, self.told = pipe, max(1, planned_steps(trial.settings)), 0, 0.0

    def __call__(self, event: Event) -> None:
        if isinstance(event, StepTaken):
            self.done = max(self.done + 1, event.step)
        if time.monotonic() - self.told > 1:
            self.told = time.monotonic()
            self.pipe.send(min(1.0, self.done / self.total))
