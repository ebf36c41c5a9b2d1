"""Does a prior that remembers the source task help? A small network, half of CIFAR-10's classes, then the other half.

    python benchmarks/ptyl_transfer.py FOLDER [--sizes 25,50,100] [--seeds 1001,2001,3001] [--out DIR]

FOLDER has train/CLASS/* and test/CLASS/*. A convolutional network with batch normalisation is trained on the first five
classes (all their training images) and its posterior is collected by SWAG; then it is fine-tuned on few images of the
other five classes under DE-ELBO with L2-zero, L2-SP and PTYL, from the same start (the SWAG mean), the learning rate by
a race. MAP with a practically flat prior (variances of 1e6) shows the result without regularisation. The source
posterior is stored in DIR and reused.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import deelbo
from deelbo.data import stratified_subset

SOURCE = ("airplane", "bird", "deer", "frog", "ship")
METHODS: dict[str, dict[str, Any]] = {
    "L2-zero": {"prior": "l2-zero"},
    "L2-SP": {"prior": "l2-sp"},
    "PTYL, K = 5": {"prior": "ptyl", "rank": 5},
    "PTYL, K = 20": {"prior": "ptyl", "rank": 20},
    "PTYL, K = 5, diagonal 0.001": {"prior": "ptyl", "rank": 5, "diagonal": 1e-3},
    "MAP, no regularisation": {"method": "map", "prior": "l2-sp", "prior_variances": {"backbone": 1e6, "head": 1e6}},
}


class Flipped(TensorDataset):
    """A data set whose images are mirrored at random."""

    def __getitem__(self, index: int) -> Any:
        image, label = super().__getitem__(index)
        return (image.flip(-1) if torch.rand(()) < 0.5 else image), label


def network() -> nn.Module:
    """Return an untrained network with six convolutions and 0.3 million weights."""
    torch.default_generator.manual_seed(0)
    layers: list[nn.Module] = []
    channels = 3
    for width, stride in ((32, 1), (32, 2), (64, 1), (64, 2), (128, 1), (128, 2)):
        layers += [nn.Conv2d(channels, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        channels = width
    body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    model = nn.Sequential()
    model.add_module("body", body)
    model.add_module("fc", nn.Linear(channels, 5))
    return model


def images(folder: Path, classes: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return all images of some classes, [N, 3, height, width], and their labels, [N]."""
    found, labels = [], []
    for label, name in enumerate(classes):
        for path in sorted((folder / name).iterdir()):
            found.append(np.asarray(Image.open(path).convert("RGB"), dtype=np.float32) / 127.5 - 1)
            labels.append(label)
    return torch.from_numpy(np.stack(found)).permute(0, 3, 1, 2).contiguous(), torch.tensor(labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder with train/CLASS/* and test/CLASS/*")
    parser.add_argument("--sizes", default="25,50,100", help="training set sizes, separated by commas")
    parser.add_argument("--seeds", default="1001,2001,3001", help="seeds for subset and training, separated by commas")
    parser.add_argument("--source-steps", type=int, default=1500, help="training steps on the source task")
    parser.add_argument("--steps", type=int, default=300, help="training steps of each fine-tuning run")
    parser.add_argument("--out", type=Path, default=Path("ptyl-benchmark"), help="folder for the source posterior")
    arguments = parser.parse_args()
    other = sorted(p.name for p in (arguments.data / "train").iterdir() if p.name not in SOURCE)
    file = arguments.out / "source.safetensors"
    if not file.exists():
        x, y = images(arguments.data / "train", list(SOURCE))
        model = network()
        began = time.perf_counter()
        found = deelbo.swag.collect(
            model, DataLoader(Flipped(x, y), 64, shuffle=True, drop_last=True), head="fc", learning_rate=0.03,
            steps=arguments.source_steps, every=arguments.source_steps // 80, checkpoint=arguments.out / "source.part",
        )  # fmt: skip
        found.save(file)
        test_x, test_y = images(arguments.data / "test", list(SOURCE))
        with torch.no_grad():
            accuracy = (model(test_x).argmax(1) == test_y).double().mean()
        print(f"source: {accuracy:.1%} of {len(test_y)} images, {time.perf_counter() - began:.0f} s\n", flush=True)
    x, y = images(arguments.data / "train", other)
    test_set = TensorDataset(*images(arguments.data / "test", other))
    print("| N | prior | accuracy (min - max) | NLL | ECE | lambda | tau | rates |\n" + "| --- " * 8 + "|")
    for size in map(int, arguments.sizes.split(",")):
        for name, options in METHODS.items():
            rows = []
            for seed in map(int, arguments.seeds.split(",")):
                chosen = stratified_subset(y.tolist(), size, seed)
                model = network()
                deelbo.swag.load_source_posterior(file).start(model, "fc")
                settings = {**options, "prior": options["prior"] + (f":{file}" if options["prior"] == "ptyl" else "")}
                plain = TensorDataset(x[chosen], y[chosen])
                result = deelbo.finetune(
                    model, Flipped(*plain.tensors), "fc", plain_train_set=plain, steps=arguments.steps, batch_size=32,
                    seed=seed, device="cpu", **settings,
                )  # fmt: skip
                rows.append((result.evaluate(test_set), result))
            accuracy = [found["accuracy"] for found, _ in rows]
            nll, ece = (np.mean([found[key] for found, _ in rows]) for key in ("nll", "ece"))
            variances = {g: ", ".join(f"{r.prior_variances[g]:.1e}" for _, r in rows) for g in ("backbone", "head")}
            rates = ", ".join(f"{r.learning_rate:g}" for _, r in rows)
            span = f"{np.mean(accuracy):.1%} ({min(accuracy):.1%} - {max(accuracy):.1%})"
            print(
                f"| {size} | {name} | {span} | {nll:.3f} | {ece:.3f} | {variances['backbone']} | "
                f"{variances['head']} | {rates} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
