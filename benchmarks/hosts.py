"""DE-ELBO inside the Hugging Face Trainer and Lightning: what one line costs, and what it buys.

    python benchmarks/hosts.py overhead DATA
    python benchmarks/hosts.py trainer DATA OUT [--texts 400] [--epochs 3] [--seeds 1,2,3]

`overhead` measures steps of MiniLM on AG News in both hosts, with and without deelbo, interleaved in one process: the
best of five rounds of eight steps. `trainer` fine-tunes MiniLM on AG News by `transformers.Trainer` at its default
learning rate with weight decay 0, 0.01 and 0.1, and with deelbo; then both again at two larger rates. Results are kept
in OUT/hosts, so an interrupted benchmark continues. Times are processor seconds of one thread, which other work on the
machine changes little.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import lightning
import torch
import torch.nn.functional as F
import transformers
from torch import nn
from torch.utils.data import DataLoader

from deelbo._files import read_json, write_json
from deelbo.data import split
from deelbo.integrations import huggingface
from deelbo.integrations.lightning import DeelboCallback
from deelbo.metrics import compute_metrics
from deelbo.specs import DataSpec, ModelSpec
from deelbo.training.batches import labels_of

RUNS = [
    *((False, decay, 5e-5) for decay in (0.0, 0.01, 0.1)),
    (True, 0.0, 5e-5),
    *((attached, 0.0, rate) for rate in (2e-4, 5e-4) for attached in (False, True)),
]


def load(data: Path, texts: int, seed: int) -> tuple[nn.Module, Any, Any]:
    """Return MiniLM with a new classifier, a training set and a test set of 500 texts."""
    parts = split(DataSpec(str(data / "agnews")).read(), texts, None, seed)
    network, reader = ModelSpec("offline:minilm", max_length=64, pooling="own").load(parts, seed)
    assert parts.test is not None
    return network, reader.dataset(parts.train), reader.dataset(parts.test.take(range(500)))


def make_trainer(network: nn.Module, dataset: Any, **changed: Any) -> Any:
    """Return a Trainer that prints and saves nothing."""
    usual = {"per_device_train_batch_size": 16, "use_cpu": True, "report_to": [], "disable_tqdm": True}
    args = transformers.TrainingArguments(tempfile.gettempdir(), save_strategy="no", **{**usual, **changed})
    return transformers.Trainer(network, args, train_dataset=dataset, data_collator=dataset.collate)


class Module(lightning.LightningModule):
    """The same network in Lightning."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network.train()  # Lightning would leave it in eval mode

    def training_step(self, batch: dict[str, Any], index: int) -> Any:
        labels = batch.pop("labels")
        return F.cross_entropy(self.network(**batch).logits, labels)

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=5e-5, weight_decay=0.0)


def seconds(host: str, attached: bool, network: nn.Module, dataset: Any, steps: int = 8) -> float:
    """Return the processor time of a training step."""
    network = copy.deepcopy(network)
    if host == "Trainer":
        trainer = make_trainer(network, dataset, max_steps=steps, logging_strategy="no")
        if attached:
            huggingface.attach(trainer)
        begin = time.process_time()
        trainer.train()
        return (time.process_time() - begin) / steps
    callbacks = [DeelboCallback(network="network", num_data=len(dataset))] if attached else []
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    fit = lightning.Trainer(max_steps=steps, accelerator="cpu", callbacks=callbacks, **quiet)
    loader = DataLoader(dataset, 16, collate_fn=dataset.collate)
    begin = time.process_time()
    fit.fit(Module(network), loader)
    return (time.process_time() - begin) / steps


def overhead(data: Path) -> None:
    """Print the time of a step in both hosts."""
    network, dataset, _ = load(data, 400, seed=1)
    for host in ("Trainer", "Lightning"):
        found: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(5):
            for attached in (False, True):
                found[attached].append(seconds(host, attached, network, dataset))
        plain, ours = min(found[False]), min(found[True])
        print(f"| {host} | {1000 * plain:.0f} ms | {1000 * ours:.0f} ms | {ours / plain:.2f} |", flush=True)


def run(data: Path, texts: int, epochs: int, seed: int, setting: tuple[bool, float, float]) -> dict[str, Any]:
    """Return the test results of one run of the Trainer, and what it learned."""
    attached, decay, rate = setting
    network, dataset, test = load(data, texts, seed)
    changed = {"num_train_epochs": epochs, "learning_rate": rate, "weight_decay": decay, "seed": seed}
    trainer = make_trainer(network, dataset, logging_strategy="epoch", **changed)
    handle = huggingface.attach(trainer) if attached else None
    begin = time.process_time()
    trainer.train()
    row: dict[str, Any] = {"seconds": time.process_time() - begin}
    logits = torch.as_tensor(trainer.predict(test).predictions).double()
    row |= compute_metrics("categorical", logits.softmax(1), labels_of(test))
    losses = [entry for entry in trainer.state.log_history if "loss" in entry]
    row |= {"loss": losses[-1]["loss"], "objective": losses[-1].get("deelbo/objective")}
    return row if handle is None else row | handle.objective.summary()


def compare(data: Path, out: Path, texts: int, epochs: int, seeds: list[int]) -> None:
    """Print accuracy, NLL and time of the Trainer alone and with deelbo, means over the seeds."""
    for seed in seeds:
        for setting in RUNS:
            if not (file := record(out, texts, epochs, seed, setting)).exists():
                write_json(file, run(data, texts, epochs, seed, setting))
    for setting in RUNS:
        attached, decay, rate = setting
        rows = [read_json(record(out, texts, epochs, seed, setting)) for seed in seeds]
        mean = {name: statistics.mean(row[name] for row in rows) for name in ("accuracy", "nll", "ece", "seconds")}
        name = "with deelbo" if attached else f"alone, weight decay {decay:g}"
        shown = f"{mean['accuracy']:.1%} | {mean['nll']:.3f} | {mean['ece']:.3f} | {mean['seconds']:.0f} s"
        objective = f"{statistics.mean(row['objective'] for row in rows):.3f}" if attached else ""
        print(f"| {rate:g} | {name} | {shown} | {objective} |", flush=True)


def record(out: Path, texts: int, epochs: int, seed: int, setting: tuple[bool, float, float]) -> Path:
    """Return the file with the results of one run."""
    attached, decay, rate = setting
    return out / "hosts" / f"{texts}-{epochs}-{seed}-{attached}-{decay}-{rate}.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["overhead", "trainer"])
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path, nargs="?", default=Path("."))
    parser.add_argument("--texts", type=int, default=400)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seeds", default="1,2,3")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.what == "overhead":
        overhead(arguments.data)
    else:
        seeds = [int(seed) for seed in arguments.seeds.split(",")]
        compare(arguments.data, arguments.out, arguments.texts, arguments.epochs, seeds)


if __name__ == "__main__":
    main()
