"""Extra cost of a training step over plain SGD: time, time per weight, memory.

    python benchmarks/step_overhead.py [--rounds 9] [--models resnet50,vit_s_16] [--priors l2_sp,l2_zero]

Times are the best of several rounds in which the variants alternate in one process, because this is the only
comparison that is reliable on a busy machine. Memory is the peak resident size, with one process for each variant.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

import deelbo


def images(size: int, number: int = 16) -> torch.Tensor:
    return torch.randn(number, 3, size, size)


def torchvision_model(name: str) -> torch.nn.Module:
    import torchvision

    return torchvision.models.get_model(name, weights=None, num_classes=10)


def timm_model(name: str) -> torch.nn.Module:
    import timm

    return timm.create_model(name, num_classes=10)


def bert(hidden_size: int, num_hidden_layers: int, num_attention_heads: int) -> torch.nn.Module:
    import transformers

    sizes: Any = {"hidden_size": hidden_size, "intermediate_size": 4 * hidden_size}
    layers: Any = {"num_hidden_layers": num_hidden_layers, "num_attention_heads": num_attention_heads}
    return transformers.BertForSequenceClassification(transformers.BertConfig(**sizes, **layers, num_labels=10))


# name -> (network, a batch for timing, a small batch for memory)
MODELS: dict[str, tuple[Callable[[], torch.nn.Module], Callable[[], torch.Tensor], Callable[[], torch.Tensor]]] = {
    "resnet18": (lambda: torchvision_model("resnet18"), lambda: images(160), lambda: images(32, 2)),
    "resnet50": (lambda: torchvision_model("resnet50"), lambda: images(160), lambda: images(32, 2)),
    "convnext_tiny": (lambda: torchvision_model("convnext_tiny"), lambda: images(160), lambda: images(32, 2)),
    "vit_s_16": (lambda: timm_model("vit_small_patch16_224"), lambda: images(224), lambda: images(224, 1)),
    "bert_mini": (
        lambda: bert(256, 4, 4),
        lambda: torch.randint(1000, (16, 128)),
        lambda: torch.randint(1000, (2, 8)),
    ),
    "minilm": (
        lambda: bert(384, 6, 12),
        lambda: torch.randint(30_000, (16, 16)),
        lambda: torch.randint(30_000, (2, 8)),
    ),
}


class Step:
    """A training step of a variant: "plain" (SGD), "ours" (an explicit loop) or "attached"; a call returns seconds."""

    def __init__(self, model: str, variant: str, prior: str, batch: torch.Tensor) -> None:
        torch.manual_seed(0)
        self.net = MODELS[model][0]()
        self.x, self.y = batch, torch.arange(len(batch)) % 10
        self.variant = variant
        self.num_params = sum(p.numel() for p in self.net.parameters())
        parameters: Any = self.net.parameters()
        if variant != "plain":
            self.posterior = deelbo.IsotropicPosterior(self.net)
            self.objective = deelbo.DataEmphasizedELBO(self.posterior, self.prior(prior), num_data=1000)
            parameters = self.posterior.parameters() if variant == "ours" else parameters
        self.optimizer = torch.optim.SGD(parameters, lr=1e-3, momentum=0.9, nesterov=True)
        if variant == "attached":
            self.objective.attach(self.optimizer)
        self.extra = 0.0  # seconds in our own code, in the latest step of "ours"

    def prior(self, name: str) -> deelbo.priors.GaussianPrior:
        if name != "ptyl":
            return getattr(deelbo.priors, name)(self.net)
        backbone = deelbo.priors.l2_zero(self.net).named_groups()["backbone"]
        size = backbone.num_params
        mean = torch.cat([w.detach().flatten() for w in backbone.weights])
        deviations = 1e-3 * torch.randn(5, size)
        return deelbo.priors.ptyl(self.net, None, mean, torch.full((size,), 1e-4), deviations)

    def loss(self) -> torch.Tensor:
        output = self.net(self.x)
        return F.cross_entropy(output if isinstance(output, torch.Tensor) else output.logits, self.y)

    def __call__(self) -> float:
        start = time.perf_counter()
        self.optimizer.zero_grad()
        if self.variant == "ours":
            begin = time.perf_counter()
            with self.posterior.sample():
                drawn = time.perf_counter()
                self.loss().backward()
                back = time.perf_counter()
            self.objective.backward()
            self.extra = time.perf_counter() - back + drawn - begin
        else:
            self.loss().backward()
        self.optimizer.step()
        return time.perf_counter() - start


def measure_time(model: str, prior: str, rounds: int) -> dict[str, float]:
    batch = MODELS[model][1]()
    steps = {variant: Step(model, variant, prior, batch) for variant in ("plain", "ours", "attached")}
    size = steps["plain"].num_params
    times: dict[str, list[float]] = {name: [] for name in (*steps, "extra", "randn")}
    for round_number in range(rounds + 1):
        for variant, step in steps.items():
            seconds = step()
            if round_number:  # the first round warms up
                times[variant].append(seconds)
        if round_number:
            times["extra"].append(steps["ours"].extra)
        start = time.perf_counter()
        torch.randn(size)
        times["randn"].append(time.perf_counter() - start)
    best = {name: min(values) for name, values in times.items()}
    middle = {name: statistics.median(values) for name, values in times.items()}
    return {
        "weights": size,
        "plain": best["plain"],
        "ours": best["ours"] / best["plain"],
        "attached": best["attached"] / best["plain"],
        "ours_median": middle["ours"] / middle["plain"],
        "attached_median": middle["attached"] / middle["plain"],
        "ns_per_weight": best["extra"] / size * 1e9,
        "times_randn": best["extra"] / best["randn"],
    }


def peak_memory(model: str, variant: str, prior: str) -> float:
    """Run three steps in a new process, and return its peak resident memory in bytes."""
    command = [sys.executable, __file__, "--memory", model, variant, prior]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def run_for_memory(model: str, variant: str, prior: str) -> None:
    step = Step(model, variant, prior, MODELS[model][2]())
    for _ in range(3):
        step()
    status = Path("/proc/self/status").read_text()  # not getrusage, which remembers the parent's size
    print(1024 * int(status.split("VmHWM:")[1].split()[0]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="number of rounds; the fastest counts")
    parser.add_argument("--models", default=",".join(MODELS), help="networks, separated by commas")
    parser.add_argument("--priors", default="l2_sp,l2_zero", help="priors, separated by commas: l2_sp, l2_zero, ptyl")
    parser.add_argument("--json", action="store_true", help="print one JSON object per row instead of a table")
    parser.add_argument("--memory", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory:
        run_for_memory(*arguments.memory)
        return
    print(
        "| network | prior | weights | plain SGD step | ours | attached | median: ours | attached "
        "| extra ns/weight | x randn(D) | extra memory, weight copies |"
    )
    print("| --- " * 11 + "|")
    for model in arguments.models.split(","):
        for prior in arguments.priors.split(","):
            row = measure_time(model, prior, arguments.rounds)
            memory = {variant: peak_memory(model, variant, prior) for variant in ("plain", "ours", "attached")}
            extra = {v: (memory[v] - memory["plain"]) / (4 * row["weights"]) for v in ("ours", "attached")}
            if arguments.json:
                print(json.dumps({"model": model, "prior": prior, **row, "memory": extra}))
                continue
            cells = [
                model,
                prior,
                f"{row['weights'] / 1e6:.1f} M",
                f"{row['plain'] * 1e3:.0f} ms",
                *(f"{row[name]:.3f}" for name in ("ours", "attached", "ours_median", "attached_median")),
                f"{row['ns_per_weight']:.1f}",
                f"{row['times_randn']:.2f}",
                f"{extra['ours']:.2f} ({extra['attached']:.2f} attached)",
            ]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
