"""Weights in bfloat16 beside float32: accuracy and what is learned, on scikit-learn's digits.

    python benchmarks/bfloat16.py               # a few minutes on one thread
    python benchmarks/bfloat16.py --rate 0.001  # with a smaller learning rate
    python benchmarks/bfloat16.py cost          # time of a step, and bytes for a weight

A small convolutional network is pretrained on the digits 0 to 4 in float32, rounded to bfloat16, and fine-tuned on 20
examples of each of the digits 5 to 9. All variants start at the same (rounded) weights, see the same batches and noise,
and have the same steps and learning rate. "bfloat16, as it is" shows what masters are for: its means and its draws are
rounded to the nearest bfloat16 number, as they would be in a network without masters, which deelbo does not offer.
Gradients and momentum are in float32 there, which is more than such a network would have.
"""

import argparse
import time

import torch
import torch.nn.functional as F
from sklearn import datasets
from torch import nn

import deelbo

STEPS, BATCH, PER_CLASS = 400, 32, 20
VARIANTS = ("float32", "float32, autocast", "bfloat16, masters", "bfloat16, masters, attached", "bfloat16, as it is")


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Return images [1797, 1, 8, 8] between 0 and 1, and labels."""
    x, y = datasets.load_digits(return_X_y=True)
    return torch.tensor(x, dtype=torch.float32).view(-1, 1, 8, 8) / 16, torch.tensor(y)


def network() -> nn.Sequential:
    """Return a network of three convolutions and a classifier of five classes: 56,000 weights."""
    layers = [nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 5)]
    return nn.Sequential(*layers)


def pretrained(seed: int) -> nn.Sequential:
    """Return the network after training on the digits 0 to 4, with a new classifier, rounded to bfloat16."""
    torch.manual_seed(seed)
    x, y = digits()
    x, y = x[y < 5], y[y < 5]
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(200):
        rows = torch.randint(len(x), (64,))
        optimizer.zero_grad()
        F.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()
    for parameter in model[-1].parameters():
        nn.init.zeros_(parameter)
    return model.bfloat16().float()


def target(seed: int) -> tuple[torch.Tensor, ...]:
    """Return training images and labels of the digits 5 to 9, and those of the test."""
    x, y = digits()
    x, y = x[y >= 5], y[y >= 5] - 5
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    train = torch.cat([order[y[order] == c][:PER_CLASS] for c in range(5)])
    test = torch.tensor(sorted(set(range(len(x))) - set(train.tolist())))
    return x[train], y[train], x[test], y[test]


@torch.no_grad()
def round_to_nearest(model: nn.Module) -> None:
    """Round all weights to the nearest bfloat16 number."""
    for weight in model.parameters():
        weight.copy_(weight.bfloat16())


def tune(variant: str, seed: int, rate: float) -> dict[str, float]:
    """Fine-tune by one variant, and return accuracy, NLL and what was learned."""
    model = pretrained(seed)
    x, y, x_test, y_test = target(seed)
    if variant.startswith("bfloat16, masters"):
        model, x, x_test = model.bfloat16(), x.bfloat16(), x_test.bfloat16()
    posterior = deelbo.IsotropicPosterior(model, seed=seed)
    prior = deelbo.priors.l2_sp(model, head="9")
    objective = deelbo.DataEmphasizedELBO(posterior, prior, num_data=len(x))
    attached = variant.endswith("attached")
    parameters = list(model.parameters() if attached else posterior.parameters())
    optimizer = torch.optim.SGD(parameters, lr=rate, momentum=0.9, nesterov=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    if attached:
        objective.attach(optimizer, max_norm=1.0)
    as_it_is = variant.endswith("as it is")
    batches = torch.Generator().manual_seed(seed)

    def loss(rows: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=as_it_is or variant.endswith("autocast")):
            outputs = model(x[rows])
        return F.cross_entropy(outputs.float(), y[rows])

    for _ in range(STEPS):
        rows = torch.randint(len(x), (BATCH,), generator=batches)
        optimizer.zero_grad()
        if attached:
            loss(rows).backward()
        elif as_it_is:
            posterior.begin(posterior.next_key(), track=True)
            round_to_nearest(model)
            loss(rows).backward()
            posterior.end()
            objective.backward()
        else:
            with posterior.sample():
                loss(rows).backward()
            objective.backward()
        if not attached:
            nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        schedule.step()
        if as_it_is:
            round_to_nearest(model)
    learned = objective.summary()
    model.eval()
    with torch.no_grad():
        outputs = model(x_test).float()
    return {
        "accuracy, %": 100 * float((outputs.argmax(1) == y_test).float().mean()),
        "NLL": float(F.cross_entropy(outputs, y_test)),
        "scale": learned["scale"],
        "lambda": learned["variance_backbone"],
        "tau": learned["variance_head"],
        "KL / (kappa N)": learned["kl"],
    }


def table(seeds: int, rate: float) -> None:
    """Print a line for each variant: mean and standard deviation over the seeds."""
    rows = {variant: [tune(variant, seed, rate) for seed in range(seeds)] for variant in VARIANTS}
    names = list(rows["float32"][0])
    print(f"| {seeds} seeds, learning rate {rate} | {' | '.join(names)} |\n|{' --- |' * (len(names) + 1)}")
    for variant, runs in rows.items():
        cells = []
        for name in names:
            values = torch.tensor([run[name] for run in runs], dtype=torch.float64)
            cells.append(f"{values.mean():.3g} ± {values.std(correction=0):.1g}")
        print(f"| {variant} | {' | '.join(cells)} |", flush=True)


def cost(width: int = 2048, steps: int = 10) -> None:
    """Print the time of a step's passes over the weights, and the bytes that are kept for each weight."""
    for dtype in (torch.float32, torch.bfloat16):
        model = nn.Sequential(nn.Linear(width, width), nn.Linear(width, 10)).to(dtype)
        posterior = deelbo.IsotropicPosterior(model)
        prior = deelbo.priors.l2_zero(model, head="1")
        objective = deelbo.DataEmphasizedELBO(posterior, prior, num_data=1000)
        optimizer = torch.optim.SGD(posterior.parameters(), lr=1e-3, momentum=0.9)
        x = torch.randn(1, width, dtype=dtype)
        times = []
        for _ in range(steps):
            begin = time.perf_counter()
            with posterior.sample():
                model(x).float().square().mean().backward()
            objective.backward()
            optimizer.step()
            optimizer.zero_grad()
            times.append(time.perf_counter() - begin)
        kept = [*model.parameters(), *posterior._saved.means, *posterior.masters.means]
        kept += [state["momentum_buffer"] for p, state in optimizer.state.items() if p.numel() > 1]
        size = sum(tensor.numel() * tensor.element_size() for tensor in kept) / posterior.num_params
        best = 1e9 * min(times) / posterior.num_params
        print(f"{dtype!s:15s} {best:.1f} ns a weight and step; {size + 4:.0f} bytes a weight with the gradient")


def main() -> None:
    """Read the arguments, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["table", "cost"], default="table")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rate", type=float, default=0.01, help="learning rate")
    options = parser.parse_args()
    if options.what == "cost":
        cost()
    else:
        table(options.seeds, options.rate)


if __name__ == "__main__":
    main()
