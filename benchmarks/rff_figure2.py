"""Fig. 2 of the paper over several draws of the random features: who is close to the exact posterior, and where?

    python benchmarks/rff_figure2.py [--seeds 10]

Each cell is an average over draws (and the worst draw): root mean squared differences from the exact posterior at the
maximum of the marginal likelihood, of the predictive mean and standard deviation, among the data and more than 1 away
from them. "closest" counts the draws in which a method has the smallest difference among the data.
Needs `pip install -e ".[reproduce]"`.
"""

from __future__ import annotations

import argparse

import numpy as np

from deelbo.reproduce.demos import errors, regression
from deelbo.reproduce.figures import fits_of_figure_2

COLUMNS = ("mean_near", "std_near", "both_near", "mean_far", "std_far")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    arguments = parser.parse_args()
    x, _ = regression()
    found: dict[str, list[dict[str, float]]] = {}
    for seed in range(arguments.seeds):
        *fits, reference = fits_of_figure_2(seed, lambda text: None)
        for fit in fits:
            row = errors(fit, reference, x)
            row["both_near"] = float(np.hypot(row["mean_near"], row["std_near"]))  # of Gaussians: their Wasserstein-2
            learned = {name: value for name, value in fit.learned.items() if value is not None}
            found.setdefault(fit.title, []).append({**row, **learned})
    print("| method | mean, near | std, near | both, near | mean, far | std, far |", end="")
    print(" closest: mean | std | both | lengthscale | scale |\n" + "| --- " * 11 + "|")
    for title, rows in found.items():
        cells = [f"{np.mean([r[c] for r in rows]):.3f} ({np.max([r[c] for r in rows]):.3f})" for c in COLUMNS]
        for column in COLUMNS[:3]:
            best = np.argmin([[r[column] for r in other] for other in found.values()], 0)
            cells.append(str(int(sum(list(found)[i] == title for i in best))))
        scale = f"{np.mean([r['scale'] for r in rows]):.3f}" if "scale" in rows[0] else ""
        print(f"| {title} | {' | '.join(cells)} | {np.mean([r['lengthscale'] for r in rows]):.2f} | {scale} |")


if __name__ == "__main__":
    main()
