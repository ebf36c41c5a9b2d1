"""DE-ELBO against ELBO and against the best of a small MAP grid, on the same training images of CIFAR-10.

    python benchmarks/cifar10.py FOLDER [--sizes 100,1000] [--steps 300] [--image-size 64] [--seed 1001] [--out DIR]

FOLDER has train/CLASS/* and test/CLASS/*. Every run is a run folder in DIR; finished ones are not repeated, so the
script can be stopped and started again. The MAP grid is judged by the test set, which flatters it: in practice its
cells would be compared on a validation set taken from the training images.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from deelbo.cli.progress import RunProgress
from deelbo.jobs.finetune import finetune_job
from deelbo.run_folder import RunFolder
from deelbo.specs import DataSpec, ModelSpec
from deelbo.training.device import Execution

STRENGTHS = (1e-2, 1e-4, 1e-6)  # alpha/N = beta/N, three of the paper's six
MAP_RATES = (0.1, 0.01)


def run(data: str, size: int, name: str, settings: dict[str, Any], arguments: argparse.Namespace) -> dict[str, Any]:
    """Make one run, unless it is finished, and return its metrics, learned values and time in seconds."""
    folder = RunFolder(Path(arguments.out) / f"{size}-{name}")
    common = {"steps": arguments.steps, "batch_size": 32, "seed": arguments.seed}
    if folder.status != "finished":
        with RunProgress(title=f"{folder.path.name}: ") as progress:
            finetune_job(
                DataSpec(data, train_size=size),
                ModelSpec("offline:efficientnet_lite0", image_size=arguments.image_size),
                {**common, **settings},
                folder.path,
                execution=Execution("cpu"),
                listener=progress,
            )
    found = folder.read()
    seconds = found["speed"]["seconds"] + found["speed"]["seconds_objective"]
    return {**found["metrics"], "seconds": seconds, "learned": found["learned"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="folder with train/CLASS/* and test/CLASS/*")
    parser.add_argument("--sizes", default="100,1000", help="training set sizes, separated by commas")
    parser.add_argument("--steps", type=int, default=300, help="training steps of each run")
    parser.add_argument("--image-size", type=int, default=64, help="side of the images in pixels")
    parser.add_argument("--seed", type=int, default=1001, help="seed for the training subset and training")
    parser.add_argument("--out", default="cifar10-benchmark", help="folder for the run folders")
    arguments = parser.parse_args()
    print("| N | method | runs | seconds | accuracy | NLL | ECE | learned or chosen |")
    print("| --- " * 8 + "|")
    for size in map(int, arguments.sizes.split(",")):
        rows = []
        for method in ("de-elbo", "elbo"):
            found = run(arguments.data, size, method, {"method": method}, arguments)
            learned = found["learned"]
            variances = learned["prior_variances"]
            text = f"rate {learned['learning_rate']:g}, lambda {variances['backbone']:.1e}, tau {variances['head']:.1e}"
            rows.append((method, "1.6", found["seconds"], found, text))
        cells = {}
        for strength in STRENGTHS:
            for rate in MAP_RATES:
                variance = 1 / (strength * size)
                settings = {
                    "method": "map",
                    "prior_variances": {"backbone": variance, "head": variance},
                    "learning_rates": (rate,),
                }
                cells[strength, rate] = run(arguments.data, size, f"map-{strength:g}-{rate:g}", settings, arguments)
        best = max(cells, key=lambda cell: cells[cell]["accuracy"])
        total = sum(cell["seconds"] for cell in cells.values())
        text = f"alpha/N = beta/N = {best[0]:g}, rate {best[1]:g}"
        rows.append((f"MAP, best of {len(cells)} by the test set", str(len(cells)), total, cells[best], text))
        worst = min(cells, key=lambda cell: cells[cell]["accuracy"])
        text = f"alpha/N = beta/N = {worst[0]:g}, rate {worst[1]:g}"
        rows.append((f"MAP, worst of {len(cells)}", "", total, cells[worst], text))
        for method, runs, seconds, found, text in rows:
            numbers = f"{found['accuracy']:.1%} | {found['nll']:.2f} | {found['ece']:.3f}"
            print(f"| {size} | {method} | {runs} | {seconds:.0f} | {numbers} | {text} |", flush=True)


if __name__ == "__main__":
    main()
