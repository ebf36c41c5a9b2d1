"""The engine for a Ray cluster: every run is a Ray task with its own resources, tried again if its worker is lost.

All nodes must share the folder of records and the data.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

from deelbo._extras import require
from deelbo._memory import keep_memory
from deelbo._wording import first_line
from deelbo.compare.engines.base import ENGINES, FAILED, RETRIES, Outcome, attempt
from deelbo.compare.problem import Trial


class RayEngine:
    """Makes runs on a Ray cluster.

    Args:
        folder: Folder of the records, shared by all nodes.
        address: Address of an existing cluster; None to start one on this machine.
        cpus: Number of cores for each run, above zero.
        gpus: Number of GPUs for each run; with a fraction, several runs share a GPU.
        device: "cpu" to stay off the GPU; accelerate's choice if None.
        retries: How often a run is tried again after its worker was lost.

    Raises:
        ConnectionError: If there is no cluster at the address.
        ValueError: If no node has the resources.
    """

    def __init__(
        self,
        folder: Path,
        address: str | None = None,
        *,
        cpus: float = 1,
        gpus: float = 0,
        device: str | None = None,
        retries: int = RETRIES,
    ) -> None:
        self._ray: Any = require("ray", "cluster")
        self._running: dict[Any, Trial] = {}
        self.folder, self.device, self.cpus = folder.absolute(), device, cpus
        self._owner = not self._ray.is_initialized()
        if self._owner:
            _check_address(address)
            try:
                self._ray.init(address=address, log_to_driver=False, logging_level="error", include_dashboard=False)
            except ConnectionError as error:
                raise ConnectionError(f"no Ray cluster at {address}: {error}") from error
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        runs_per_node = [
            min(int(node.get(name, 0) // wanted) for name, wanted in (("CPU", cpus), ("GPU", gpus)) if wanted)
            for node in nodes
        ]
        self.slots = sum(runs_per_node)
        if not self.slots:
            self.close()
            raise ValueError(f"no node of the cluster has {cpus:g} CPUs and {gpus:g} GPUs for a run")
        task = self._ray.remote(_work)
        # Ray tries a run again if its worker or node is lost, but not after an error, which would happen again.
        self._task = task.options(num_cpus=cpus, num_gpus=gpus, max_retries=retries, retry_exceptions=False)

    def submit(self, trial: Trial) -> None:
        """Start a run."""
        threads = max(1, int(self.cpus))
        self._running[self._task.remote(trial, str(self.folder), self.device, threads)] = trial

    def wait(self, seconds: float) -> list[Outcome]:
        """Return the runs that have ended, after so many seconds at the latest."""
        if not self._running:
            return []
        ready, _ = self._ray.wait(list(self._running), num_returns=1, timeout=seconds)
        return [self._outcome(reference) for reference in ready]

    def _outcome(self, reference: Any) -> Outcome:
        trial = self._running.pop(reference)
        try:
            return Outcome(*self._ray.get(reference))
        except self._ray.exceptions.RayError as error:
            return Outcome(trial.key, FAILED, f"{type(error).__name__}: {first_line(error)}")

    def progress(self) -> dict[str, float]:
        """Return nothing, because Ray does not report the progress of a task."""
        return {}

    def close(self) -> None:
        """Cancel the present runs; their checkpoints stay."""
        for reference in self._running:
            self._ray.cancel(reference, force=True)
        if self._owner:
            self._ray.shutdown()


@ENGINES.register("ray", "a Ray cluster")
def ray_engine(
    folder: Path, *, device: str | None, ray_address: str | None, cpus: float, gpus: float, **resources: Any
) -> RayEngine:
    """Return the engine of a Ray cluster; the arguments of other engines are ignored."""
    return RayEngine(folder, ray_address, cpus=cpus, gpus=gpus, device=device)


def _check_address(address: str | None) -> None:
    """Raise an error if nothing listens at the address; Ray itself would wait for minutes."""
    host, _, port = (address or "auto").removeprefix("ray://").rpartition(":")
    if port.isdigit():
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except OSError as error:
            raise ConnectionError(f"no Ray cluster at {address}: {error}") from error


def _work(trial: Trial, folder: str, device: str | None, threads: int) -> tuple[str, str, str]:
    import torch

    keep_memory()
    torch.set_num_threads(threads)
    outcome = attempt(trial, Path(folder), device)
    return outcome.key, outcome.status, outcome.message
