"""Kill a node of a Ray cluster (SIGKILL, with its workers) during a comparison, and check the records.

    python benchmarks/ray_node_kill.py FOLDER [--after 60] [--model offline:efficientnet_lite0]

FOLDER has images in train/CLASS and test/CLASS. A cluster of two nodes is started on this machine, each with one core
for runs; the network is trained on 40 images by three methods. So many seconds after the first run has begun, the
second node is killed while it makes a run. The script prints the journal of each run that was begun more than once, and
whether every record is there, whole, and made once. Needs `pip install -e ".[offline,cluster]"`.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

OPTIONS = [
    *("--image-size", "32", "--train-sizes", "40", "--test-size", "40", "--methods", "de-elbo,elbo,map-grid"),
    *("--steps", "20", "--batch-size", "20", "--learning-rates", "0.1,0.01", "--strengths", "0.01,0"),
    *("--device", "cpu", "--engine", "ray"),
]


class Node:
    """A node of a Ray cluster on this machine, with one core for runs.

    Args:
        place: Folder for its files.
        words: Options of `ray start`.
    """

    def __init__(self, place: Path, *words: str) -> None:
        usual = ["--num-cpus=1", "--object-store-memory=100000000", "--disable-usage-stats", "--block"]
        log = place / f"{len(list(place.glob('*.log')))}.log"
        command = [str(Path(sys.executable).with_name("ray")), "start", *words, *usual]
        self.process = subprocess.Popen(command, stdout=log.open("w"), stderr=subprocess.STDOUT)
        end = time.monotonic() + 60
        while "Ray runtime started" not in log.read_text():
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the node does not start: {log.read_text()}")
            time.sleep(0.2)

    def processes(self) -> list[int]:
        """Return the node's processes, its workers among them."""
        found = [self.process.pid]
        for process in found:  # which grows
            path = Path(f"/proc/{process}/task/{process}/children")
            found += [int(child) for child in path.read_text().split()] if path.exists() else []
        return found

    def kill(self) -> None:
        """Kill all of its processes at once, as if the machine had lost its power."""
        for process in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self.process.wait()


def read_journal(records: Path) -> list[dict[str, Any]]:
    """Return the lines of the journal; none before the first run."""
    path = records / "journal.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run_of(workers: list[int], lines: list[dict[str, Any]]) -> str | None:
    """Return the run that one of these workers makes."""
    ended = {line["key"] for line in lines if line["event"] == "ended"}
    own = [line["key"] for line in lines if line["process"] in workers and line["key"] not in ended]
    return own[-1] if own else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder with images in train/CLASS and test/CLASS")
    parser.add_argument("--after", type=float, default=60, help="seconds between the first run and the kill")
    parser.add_argument("--model", default="offline:efficientnet_lite0", help="network to train")
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ["RAY_AUTH_MODE"] = "disabled"  # or a token that an earlier local cluster has left is asked of all nodes
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as nodes:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        head = Node(Path(place), "--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={place}/ray")
        nodes.callback(head.kill)
        second = Node(Path(place), f"--address=127.0.0.1:{port}")
        nodes.callback(second.kill)
        out = Path(place) / "out"
        words = ["compare", str(arguments.data), "--model", arguments.model, "--out", str(out), *OPTIONS]
        command = [sys.executable, "-m", "deelbo", *words, "--ray-address", f"127.0.0.1:{port}"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        nodes.callback(process.kill)
        killed = None
        while process.poll() is None:
            time.sleep(0.2)
            lines = read_journal(out / "records")
            due = bool(lines) and time.time() - lines[0]["time"] > arguments.after
            if killed is None and due and (run := run_of(second.processes(), lines)) is not None:
                second.kill()
                killed = run, time.time()
        show(out / "records", process.returncode, killed)


def show(records: Path, code: int, killed: tuple[str, float] | None) -> None:
    """Print the journal of runs that were begun more than once, and what has become of all records."""
    lines = read_journal(records)
    begun, ended = (collections.Counter(x["key"] for x in lines if x["event"] == e) for e in ("begun", "ended"))
    start = lines[0]["time"]
    rows = [(x["time"], x["event"], x["key"], str(x["process"])) for x in lines if begun[x["key"]] > 1]
    if killed is not None:
        rows.append((killed[1], "node killed", killed[0], ""))
    print("| second | event | run | process |\n| --- | --- | --- | --- |")
    for moment, event, key, worker in sorted(rows):
        print(f"| {moment - start:.0f} | {event} | {key[:8]} | {worker} |")
    whole = [json.loads(path.read_text())["key"] == path.stem for path in records.glob("*.json")]
    print(
        f"exit code {code}; {len(begun)} runs begun, {len(whole)} records, {sum(whole)} whole; ended more than once: "
        f"{sum(n > 1 for n in ended.values())}; begun without a record: {len(set(begun) - set(ended))}; "
        f"begun more than once: {sum(n > 1 for n in begun.values())}; processes: {len({x['process'] for x in lines})}"
    )


if __name__ == "__main__":
    main()
