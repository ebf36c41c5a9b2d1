"""Three short DE-ELBO runs whose results must not change when code is only rearranged.

    python benchmarks/same_bits.py IMAGES TEXTS > before.txt

IMAGES has train/CLASS/* and test/CLASS/* (at least 60 training images), TEXTS has train.csv and test.csv. Prints a hash
of the weights, the chosen rate, the objective, the scale and the prior variances of an MLP on digits, of
EfficientNet-Lite0 and of MiniLM. Run it before and after a change, on one machine, and compare with `diff`.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

import deelbo
from deelbo.cli import main as command

RUNS = {
    "image": ("offline:efficientnet_lite0", ["--train-size", "60", "--image-size", "48", "--steps", "30"]),
    "text": ("offline:minilm", ["--train-size", "48", "--max-length", "16", "--steps", "24"]),
}


def show(name: str, result: deelbo.Result) -> None:
    """Print what a run ended with, to the last bit."""
    digest = hashlib.sha256()
    for key, value in result.model.state_dict().items():
        digest.update(key.encode())
        digest.update(value.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    learned = result.learning_rate, result.objective, result.scale, result.prior_variances
    print(name, digest.hexdigest()[:16], *map(repr, learned), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", help="folder with train/CLASS/* and test/CLASS/*")
    parser.add_argument("texts", help="folder with train.csv and test.csv")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    x, y = (torch.tensor(array) for array in load_digits(return_X_y=True))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    digits = TensorDataset(x[:300].float() / 16, y[:300])
    show("mlp", deelbo.finetune(model, digits, "2", steps=100, batch_size=50, seed=3))
    for name, (spec, options) in RUNS.items():
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "run"
            words = ["finetune", getattr(arguments, f"{name}s"), "--model", spec, "--out", str(out), *options]
            command([*words, "--batch-size", "16", "--learning-rates", "0.1,0.01", "--seed", "5", "--quiet"])
            show(name, deelbo.load(out))


if __name__ == "__main__":
    main()
