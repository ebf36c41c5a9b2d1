"""Nodes of a Ray cluster on this machine, which can be killed."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from shared.processes import environment


class Node:
    """A node with one core, and all processes that belong to it.

    Args:
        log: File for what it prints.
        words: Options of `ray start`.
    """

    def __init__(self, log, *words):
        words = [*words, "--num-cpus=1", "--object-store-memory=100000000", "--disable-usage-stats", "--block"]
        # Ray's workers are very nice, and would wait for other tests; a dead node is noticed after two seconds.
        # Ray would ask for a token where an earlier local cluster has left one, but only the first node would know it.
        options = {
            "RAY_AUTH_MODE": "disabled",
            "RAY_worker_niceness": "0",
            "RAY_health_check_period_ms": "500",
            "RAY_health_check_timeout_ms": "1000",
        }
        options |= {"RAY_health_check_initial_delay_ms": "1000", "RAY_health_check_failure_threshold": "3"}
        command = [Path(sys.executable).with_name("ray"), "start", *words]
        with log.open("w") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out, env=environment(**options))
        end = time.monotonic() + 120
        while "Ray runtime started" not in log.read_text():
            assert self.process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.1)

    def processes(self):
        found = [self.process.pid]
        for process in found:  # which grows
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found += map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split())
        return found

    def kill(self):
        """Kill the node with its workers, as if its machine had lost its power."""
        for process in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self.process.wait()


@contextlib.contextmanager
def two_nodes(folder):
    """Yield the address of a cluster and its second node; whatever is left of both is killed in the end."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"127.0.0.1:{port}"
    folder.mkdir()
    with contextlib.ExitStack() as nodes:
        words = ("--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={folder}")
        nodes.callback(Node(folder / "head.log", *words).kill)
        second = Node(folder / "second.log", f"--address={address}")
        nodes.callback(second.kill)
        yield address, second
