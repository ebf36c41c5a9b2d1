"""L-BFGS on closed forms against the paper's Adam with 5 Monte Carlo samples, on the paper's toy data.

    python benchmarks/rff_solvers.py [--seeds 3] [--steps 10000]

Adam runs at four learning rates, and the best run counts. Objectives are computed without Monte Carlo error. All fits
run in one process.
"""

from __future__ import annotations

import argparse
import time
import warnings

from deelbo.reproduce.rff.demos import regression
from deelbo.rff import RFFRegressor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="number of draws of the random features")
    parser.add_argument("--steps", type=int, default=10_000, help="Adam steps at each learning rate")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    x, y = regression()
    print("| objective | draw of A, b | L-BFGS | seconds | evaluations | Adam | seconds | times slower |")
    print("| --- " * 8 + "|")
    for objective in ("de-elbo", "elbo"):
        for seed in range(arguments.seeds):
            settings = {"objective": objective, "normalize_y": False, "random_state": seed, "steps": arguments.steps}
            best = float("inf")
            for _ in range(5):
                began = time.perf_counter()
                exact = RFFRegressor(1024, **settings).fit(x, y)
                best = min(best, time.perf_counter() - began)
            began = time.perf_counter()
            adam = RFFRegressor(1024, solver="adam", **settings).fit(x, y)
            seconds = time.perf_counter() - began
            print(
                f"| {objective} | {seed} | {exact.objective_:.2f} | {best:.3f} | {exact.n_iter_} | "
                f"{adam.objective_:.2f} | {seconds:.1f} | {seconds / best:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
