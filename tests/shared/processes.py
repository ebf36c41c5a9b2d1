"""Processes to kill: each forks from a server that has imported PyTorch already, so that it starts in a moment."""

import functools
import multiprocessing
import multiprocessing.forkserver
import os
import signal
import socket
import sys
import time
from pathlib import Path

import pytest
import torch

PRELOAD = [
    *("torch", "accelerate", "torchmetrics", "timm", "sklearn.datasets"),
    *("deelbo.cli.app", "deelbo.compare", "shared.digits", "shared.pictures"),
]
GET_CONTEXT = multiprocessing.get_context


def environment(**more):
    """Return the variables of a process that can import what this one can, with one thread."""
    paths = os.pathsep.join(path for path in sys.path if path)
    return {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", **more}


@functools.cache
def _server():
    """Start the server, with this process's paths and one thread."""
    context = multiprocessing.get_context("forkserver")
    if multiprocessing.parent_process() is not None:  # a child of the server
        return context
    context.set_forkserver_preload(PRELOAD)
    before = dict(os.environ)
    os.environ.update(environment())
    try:
        multiprocessing.forkserver.ensure_running()
    finally:
        os.environ.clear()
        os.environ.update(before)
    return context


class Started:
    """A running process.

    Args:
        function: What it does; what it returns is the exit code.
        arguments: For the function.
        out: File for what it prints.
        log: File for what it prints as errors.
        variables: Further variables of its environment.
    """

    def __init__(self, function, *arguments, out=os.devnull, log=os.devnull, **variables):
        self.out, self.log = Path(out), Path(log)
        for path in (out, log):
            open(path, "a").close()  # so that it may be read at once
        context, address = _server(), multiprocessing.forkserver._forkserver._forkserver_address
        work = (function, arguments, self.out, self.log, environment(**variables), address)
        self.process = context.Process(target=_child, args=work)
        self.process.start()

    def running(self):
        return self.process.exitcode is None

    def kill(self, number=signal.SIGKILL):
        """Send a signal and return the exit code."""
        os.kill(self.process.pid, number)
        return self.wait()

    def wait(self, seconds=120):
        self.process.join(seconds)
        assert not self.running(), "the process does not end"
        return self.process.exitcode


def start_several(number, function, *arguments):
    """Run a function of a rank and more in several processes and wait for all; an error in any is raised."""
    _server()
    torch.multiprocessing.start_processes(function, arguments, nprocs=number, start_method="forkserver")


def start_two(function, *arguments):
    """Run a function of a rank and more in two processes and wait for both; an error in either is raised."""
    start_several(2, function, *arguments)


def spawn_workers(monkeypatch):
    """Undo `fork_workers`: workers start as they do for a user."""
    monkeypatch.setattr(multiprocessing, "get_context", GET_CONTEXT)


def fork_workers(monkeypatch):
    """Let the workers of `LocalEngine` fork from the server, instead of importing everything each for itself."""
    context = _server()
    monkeypatch.setattr(
        multiprocessing, "get_context", lambda name=None: context if name == "spawn" else GET_CONTEXT(name)
    )


def command(words, **options):
    """Start `deelbo` with these words."""
    return Started(_main, words, **options)


def group(words, number, logs, **variables):
    """Start `deelbo` with these words in several processes that train together, as torchrun does.

    Args:
        words: The command.
        number: Number of processes.
        logs: Folder for what each prints: out-RANK and log-RANK.
        variables: Further variables of their environment.
    """
    logs.mkdir(parents=True, exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(number), **variables}
    return [
        command(words, out=logs / f"out-{i}", log=logs / f"log-{i}", RANK=str(i), LOCAL_RANK=str(i), **common)
        for i in range(number)
    ]


def wait_until(condition, process, seconds=120):
    """Wait until something is so while a process runs; return whether it was."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        if not process.running():
            return condition()
        time.sleep(0.01)
    return False


def _main(words):
    from deelbo.cli import main

    fork_workers(pytest.MonkeyPatch())
    sys.argv = ["deelbo", *words]
    return main(words)


def _child(function, arguments, out, log, variables, address):
    os.environ.update(variables)
    for path, stream in ((out, 1), (log, 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), stream)
    torch.set_num_threads(1)
    if sys.version_info < (3, 14):  # whose own children would start a server each
        server = multiprocessing.forkserver._forkserver
        server._forkserver_address, server.ensure_running = address, lambda: None
    sys.exit(function(*arguments))
