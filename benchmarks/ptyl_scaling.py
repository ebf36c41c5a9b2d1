"""Which scaling of lambda gives PTYL's grid search its best: 1/(2 lambda N), the paper's text, or 1/(2 lambda)?

    python benchmarks/ptyl_scaling.py [--sizes 50,400] [--seeds 1001,2001,3001] [--steps 100]

An MLP is trained on the digits 0 to 4 and its posterior is collected by SWAG; then MAP with the prior PTYL learns the
digits 5 to 9 for every cell of a grid (the paper's ten values of lambda, one strength of the classifier, one learning
rate) on four fifths of N images. The best cell by validation NLL is trained on all N and tested on the rest. Both
scalings share all but lambda: 1/(2 lambda N) is the prior variance lambda, 1/(2 lambda) is lambda/N.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import deelbo
from deelbo.compare.problem import PTYL_VARIANCES
from deelbo.data import stratified_subset

STRENGTHS, RATES = (1e-3,), (0.03,)


def network() -> nn.Module:
    """Return an untrained network of 64, 64, 64 and 5 units."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5))


def run(file: Path, x: Tensor, y: Tensor, cell: tuple[float, float, float], scaling: str, **more: Any) -> deelbo.Result:
    """Return MAP with one cell of the grid: lambda, the classifier's strength and the learning rate."""
    variance, strength, rate = cell
    variances = {
        "backbone": variance if scaling == "sum" else variance / len(x),
        "head": 1 / (strength * len(x)) if strength else float("inf"),
    }
    return deelbo.finetune(
        network(),
        TensorDataset(x, y),
        "4",
        method="map",
        prior=f"ptyl:{file}",
        prior_variances=variances,
        learning_rates=(rate,),
        batch_size=32,
        device="cpu",
        calibrate="none",
        **more,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="50,400", help="training set sizes, separated by commas")
    parser.add_argument("--seeds", default="1001,2001,3001", help="seeds, separated by commas")
    parser.add_argument("--steps", type=int, default=100, help="training steps of each run")
    arguments = parser.parse_args()
    images, labels = (torch.tensor(array) for array in load_digits(return_X_y=True))
    images, source = images.float() / 16, labels < 5
    x, y = images[~source], labels[~source] - 5
    cells = list(itertools.product(PTYL_VARIANCES, STRENGTHS, RATES))
    print("| N | scaling | test accuracy | test NLL | chosen lambda |\n" + "| --- " * 5 + "|")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "source.safetensors"
        loader = DataLoader(TensorDataset(images[source], labels[source]), 64, shuffle=True, drop_last=True)
        deelbo.swag.collect(network(), loader, head="4", learning_rate=0.03, steps=600).save(file)
        for size, scaling in itertools.product(map(int, arguments.sizes.split(",")), ("sum", "mean")):
            rows = []
            for seed in map(int, arguments.seeds.split(",")):
                chosen = torch.tensor(stratified_subset(y.tolist(), size, seed))
                rest = torch.tensor(sorted(set(range(len(y))) - set(chosen.tolist())))
                held = torch.zeros(size, dtype=torch.bool)
                held[stratified_subset(y[chosen].tolist(), size // 5, seed)] = True
                part, validation = chosen[~held], TensorDataset(x[chosen[held]], y[chosen[held]])
                more = {"steps": arguments.steps, "seed": seed}
                scores = [
                    run(file, x[part], y[part], cell, scaling, **more).evaluate(validation)["nll"] for cell in cells
                ]
                best = cells[scores.index(min(scores))]
                result = run(file, x[chosen], y[chosen], best, scaling, **more)
                rows.append((result.evaluate(TensorDataset(x[rest], y[rest])), best[0]))
            accuracy, nll = (sum(found[name] for found, _ in rows) / len(rows) for name in ("accuracy", "nll"))
            values = ", ".join(f"{variance:.0e}" for _, variance in rows)
            print(f"| {size} | {scaling} | {accuracy:.1%} | {nll:.3f} | {values} |", flush=True)


if __name__ == "__main__":
    main()
