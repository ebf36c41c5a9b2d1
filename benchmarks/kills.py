"""Kill a run at random moments, resume it each time, and compare its weights with those of an uninterrupted run.

    python benchmarks/kills.py FOLDER [--kills 10] [--seed 0] [--steps 240] [--processes 1]

FOLDER has images in CLASS/*. The network is EfficientNet-Lite0 at 48 pixels, with a checkpoint every second. Several
processes are started by torchrun; then one of them is killed, and how long the others take to end is printed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def command(data: str, out: Path, steps: int, processes: int) -> list[str]:
    options = ["--model", "offline:efficientnet_lite0", "--out", str(out), "--train-size", "64", "--image-size", "48"]
    options += ["--steps", str(steps), "--batch-size", "16", "--checkpoint-seconds", "1", "--device", "cpu", "--quiet"]
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
    return [sys.executable, *(launcher if processes > 1 else []), "-m", "deelbo", "finetune", data, *options]


def kill(process: subprocess.Popen[bytes], processes: int, moments: random.Random) -> str:
    """Kill a run, or one of its processes, and return what was killed."""
    if processes == 1:
        process.kill()
        process.wait()
        return "the process"
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    rank, begin = moments.randrange(processes), time.monotonic()
    os.kill(int(children[rank]), signal.SIGKILL)
    process.wait()
    return f"process {rank}, the others ended {time.monotonic() - begin:.1f} s later"


def newest(folder: Path) -> int:
    """Return when the newest checkpoint of a run was written; 0 if there is none."""
    return max((path.stat().st_mtime_ns for path in folder.glob("checkpoints/learning-rate-*")), default=0)


def digest(folder: Path) -> str:
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="folder with images in CLASS/*")
    parser.add_argument("--kills", type=int, default=10, help="number of times to kill the run")
    parser.add_argument("--steps", type=int, default=240, help="number of training steps")
    parser.add_argument("--processes", type=int, default=1, help="number of processes that train together")
    parser.add_argument("--seed", type=int, default=0, help="seed for the random moments of the kills")
    arguments = parser.parse_args()
    moments, how = random.Random(arguments.seed), (arguments.steps, arguments.processes)
    with tempfile.TemporaryDirectory() as folder:
        whole, killed = Path(folder) / "whole", Path(folder) / "killed"
        start = time.monotonic()
        subprocess.run(command(arguments.data, whole, *how), check=True)
        lasted = time.monotonic() - start
        print(f"uninterrupted: {lasted:.0f} s, sha256 {digest(whole)[:16]}")
        kills = 0
        while kills < arguments.kills:
            # Between 3 % and 16 % of the duration of a whole run, so that ten kills fit into one run.
            wait = moments.uniform(0.03, 0.16) * lasted
            quiet = subprocess.DEVNULL if arguments.processes > 1 else None  # the launcher tells of the death at length
            before = newest(killed)
            process = subprocess.Popen(command(arguments.data, killed, *how), stderr=quiet)
            # Several processes take longer to start than for a few steps.
            while arguments.processes > 1 and newest(killed) == before and process.poll() is None:
                time.sleep(0.05)
            try:
                process.wait(timeout=wait)
                print("the run ended before the next kill")
                break
            except subprocess.TimeoutExpired:
                what = kill(process, arguments.processes, moments)
                kills += 1
                state = sorted(p.name for p in killed.glob("checkpoints/*")) if killed.exists() else []
                print(f"kill {kills} after {wait:.1f} s, {what}; checkpoints: {', '.join(state) or 'none'}", flush=True)
        if not (killed / "report.html").exists():
            subprocess.run(command(arguments.data, killed, *how), check=True)
        verdict = "same" if digest(killed) == digest(whole) else "OTHER"
        print(f"after {kills} kills: sha256 {digest(killed)[:16]}: {verdict}")


if __name__ == "__main__":
    main()
