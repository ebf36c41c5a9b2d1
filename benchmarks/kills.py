"""Kill a run at random moments, resume it each time, and compare its weights with those of an uninterrupted run.

    python benchmarks/kills.py FOLDER [--kills 10] [--seed 0]

FOLDER has images in CLASS/*. The network is EfficientNet-Lite0 at 48 pixels, with a checkpoint every second.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def command(data: str, out: Path) -> list[str]:
    options = ["--model", "offline:efficientnet_lite0", "--out", str(out), "--train-size", "64", "--image-size", "48"]
    options += ["--steps", "240", "--batch-size", "16", "--checkpoint-seconds", "1", "--device", "cpu", "--quiet"]
    return [sys.executable, "-m", "deelbo", "finetune", data, *options]


def digest(folder: Path) -> str:
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="folder with images in CLASS/*")
    parser.add_argument("--kills", type=int, default=10, help="number of times to kill the run")
    parser.add_argument("--seed", type=int, default=0, help="seed for the random moments of the kills")
    arguments = parser.parse_args()
    moments = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as folder:
        whole, killed = Path(folder) / "whole", Path(folder) / "killed"
        start = time.monotonic()
        subprocess.run(command(arguments.data, whole), check=True)
        lasted = time.monotonic() - start
        print(f"uninterrupted: {lasted:.0f} s, sha256 {digest(whole)[:16]}")
        kills = 0
        while kills < arguments.kills:
            # Between 3 % and 16 % of the duration of a whole run, so that ten kills fit into one run.
            wait = moments.uniform(0.03, 0.16) * lasted
            process = subprocess.Popen(command(arguments.data, killed))
            try:
                process.wait(timeout=wait)
                print("the run ended before the next kill")
                break
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                kills += 1
                state = sorted(p.name for p in killed.glob("checkpoints/*")) if killed.exists() else []
                print(f"kill {kills} after {wait:.1f} s; checkpoints: {', '.join(state) or 'none'}", flush=True)
        if not (killed / "report.html").exists():
            subprocess.run(command(arguments.data, killed), check=True)
        verdict = "same" if digest(killed) == digest(whole) else "OTHER"
        print(f"after {kills} kills: sha256 {digest(killed)[:16]}: {verdict}")


if __name__ == "__main__":
    main()
