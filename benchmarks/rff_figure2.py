"""Fig. 2 of the paper over several draws of the random features: distances from the exact posterior.

    python benchmarks/rff_figure2.py [--seeds 10] [--adam 10000]

Each cell is the average over the draws (and the worst draw) of the root mean squared difference from the exact
posterior at the maximum of the marginal likelihood: of the predictive mean or standard deviation, within the range of
the data ("near") or more than 1 outside it ("far"). "closest" counts the draws in which a method has the smallest
difference near the data.
With --adam STEPS, the methods are trained as in the paper instead of to the maximum: from lengthscale, outputscale and
noise 1, by that many steps of Adam at four learning rates, of which each method's own objective chooses the best (the
Laplace methods have their weights at the MAP in every step).
Needs `pip install -e ".[reproduce]"`.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from deelbo.reproduce.rff.demos import Fit, errors, held_out, regression, rff_fit
from deelbo.reproduce.rff.figures import fits_of_figure_2
from deelbo.reproduce.rff.laplace import LaplaceRFF
from deelbo.rff import RFFRegressor
from deelbo.rff.stochastic import RATES

COLUMNS = ("mean_near", "std_near", "both_near", "mean_far", "std_far")


def adam(steps: int) -> Callable[[Callable[[torch.Tensor], torch.Tensor]], torch.Tensor]:
    """Return a function that maximises a criterion over the log hyperparameters by Adam, from zeros."""

    def maximise(criterion: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        ends = []
        for rate in RATES:
            logs = torch.zeros(3, dtype=torch.float64, requires_grad=True)
            optimizer = torch.optim.Adam([logs], lr=rate)
            for _ in range(steps):
                optimizer.zero_grad()
                (-criterion(logs)).backward()
                optimizer.step()
                with torch.no_grad():
                    logs.clamp_(min=np.log(1e-3))
            ends.append(logs.detach())
        return max(ends, key=lambda logs: criterion(logs).item())

    return maximise


def fits_by_adam(seed: int, steps: int) -> list[Fit]:
    """Return the five fits of the figure, trained by Adam; the last one, the exact posterior, is the reference."""
    x, y = regression()
    model, (train, rest) = LaplaceRFF(x, y, seed), held_out(len(x))
    fits = [
        model.fit("diagEF LA-LML", model.log_marginal_likelihood, adam(steps)),
        model.fit("diagEF LA-CLML", lambda logs: model.conditional(logs, train, rest), adam(steps)),
    ]
    settings: dict[str, Any] = {"normalize_y": False, "random_state": seed, "steps": steps}
    for title, objective in (("iso ELBO", "elbo"), ("iso DE-ELBO (ours)", "de-elbo")):
        fits.append(rff_fit(title, RFFRegressor(1024, objective=objective, solver="adam", **settings).fit(x, y)))
    return [*fits, rff_fit("true posterior", RFFRegressor(1024, **settings).fit(x, y))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10, help="number of draws of the random features")
    parser.add_argument(
        "--adam", type=int, default=0, help="steps of Adam as in the paper; 0 for L-BFGS to the maximum"
    )
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    x, _ = regression()
    found: dict[str, list[dict[str, float]]] = {}
    for seed in range(arguments.seeds):
        found_by = fits_by_adam(seed, arguments.adam) if arguments.adam else fits_of_figure_2(seed, lambda text: None)
        *fits, reference = found_by
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
