"""Time and memory of `RFFRegressor.fit` as the number of rows grows.

    python benchmarks/rff_scaling.py [--numbers 1000,10000,100000,1000000] [--dtype float32] [--plot scaling.png]

Each fit runs in its own process; memory is the peak resident size during the fit minus the size before it, when the
data were loaded.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path


def measure(number: int, dtype: str) -> dict[str, float]:
    """Fit once in this process, and return time, memory and error."""
    import numpy as np
    import torch

    from deelbo.rff import RFFRegressor

    random = np.random.default_rng(0)
    X = random.standard_normal((number, 4))
    y = np.sin(X @ [2.0, 1.0, 0.5, 0.2]) + 0.3 * np.cos(2 * X[:, 0] * X[:, 1]) + 0.1 * random.standard_normal(number)
    RFFRegressor(64, max_iter=2, random_state=0, dtype=dtype).fit(
        X[:3000], y[:3000]
    )  # a small fit first, to load all libraries
    torch.zeros(1)
    with open("/proc/self/statm") as file:
        before = int(file.read().split()[1]) * resource.getpagesize()
    began = time.perf_counter()
    model = RFFRegressor(1024, random_state=0, dtype=dtype).fit(X, y)
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    error = float(np.sqrt(np.mean((model.predict(X[:1000]) - y[:1000]) ** 2)))
    found = {"number": number, "seconds": seconds, "evaluations": model.n_iter_, "error": error, "noise": model.noise_}
    return {**found, "data": (X.nbytes + y.nbytes) / 2**20, "extra": (peak - before) / 2**20}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--numbers", default="1000,10000,100000,1000000", help="numbers of rows, separated by commas")
    parser.add_argument("--dtype", default="float32", help="precision of the features: float32 or float64")
    parser.add_argument("--plot", type=Path, help="file for a plot of time and memory; none if not given")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one, arguments.dtype)))
        return
    import numpy as np

    rows = []
    print("| N | seconds | evaluations | extra memory, MB | of the data, MB | RMSE | noise |\n" + "| --- " * 7 + "|")
    for number in map(int, arguments.numbers.split(",")):
        command = [sys.executable, __file__, "--one", str(number), "--dtype", arguments.dtype]
        rows.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
        row = rows[-1]
        print(
            f"| {number:,} | {row['seconds']:.1f} | {row['evaluations']} | {row['extra']:.0f} | {row['data']:.1f} | "
            f"{row['error']:.4f} | {row['noise']:.4f} |",
            flush=True,
        )
    numbers, seconds = (np.log([row[key] for row in rows]) for key in ("number", "seconds"))
    print(f"slope of log time over log N: {np.polyfit(numbers, seconds, 1)[0]:.2f}, ", end="")
    print(f"last decade {(seconds[-1] - seconds[-2]) / (numbers[-1] - numbers[-2]):.2f}")
    if arguments.plot:
        plot(rows, arguments.plot)


def plot(rows: list[dict[str, float]], path: Path) -> None:
    """Plot time and memory against N on logarithmic axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 3), layout="constrained")
    left, right = figure.subplots(1, 2)
    numbers = [row["number"] for row in rows]
    left.loglog(numbers, [row["seconds"] for row in rows], "o-", color="#2a6fb0", label="RFFRegressor, R = 1024")
    last = rows[-1]
    line = [last["seconds"] * n / last["number"] for n in numbers]
    left.loglog(numbers, line, "--", color="#777777", label="proportional to N")
    left.set(xlabel="N", ylabel="seconds of fit")
    left.legend(frameon=False, fontsize=8)
    right.loglog(numbers, [max(1, row["extra"]) for row in rows], "o-", color="#2a6fb0", label="beyond the data")
    right.loglog(numbers, [row["data"] for row in rows], "s--", color="#777777", label="the data")
    right.set(xlabel="N", ylabel="memory, MB")
    right.legend(frameon=False, fontsize=8)
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
