"""DE-ELBO inside the Hugging Face Trainer and Lightning: what one line costs, and what it buys.

    python benchmarks/hosts.py overhead DATA
    python benchmarks/hosts.py trainer DATA OUT [--texts 400] [--epochs 3]

`overhead` measures steps of MiniLM on AG News in both hosts, with and without deelbo, interleaved in one process: the
best of five rounds of eight steps. `trainer` fine-tunes MiniLM on AG News by `transformers.Trainer` at its default
learning rate with weight decay 0, 0.01 and 0.1, and with deelbo at its default and two larger rates; results are kept
in OUT/hosts, so an interrupted benchmark continues.
"""

from __future__ import annotations

import argparse
import copy
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

SEED = 1


def load(data: Path, texts: int) -> tuple[nn.Module, Any, Any]:
    """Return MiniLM with a new classifier, a training set and a test set of 500 texts."""
    parts = split(DataSpec(str(data / "agnews")).read(), texts, None, SEED)
    network, reader = ModelSpec("offline:minilm", max_length=64, pooling="own").load(parts, SEED)
    assert parts.test is not None
    return network, reader.dataset(parts.train), reader.dataset(parts.test.take(range(500)))


def make_trainer(network: nn.Module, dataset: Any, **changed: Any) -> Any:
    """Return a Trainer that prints and saves nothing."""
    usual = {"per_device_train_batch_size": 16, "use_cpu": True, "report_to": [], "disable_tqdm": True, "seed": SEED}
    args = transformers.TrainingArguments(tempfile.gettempdir(), save_strategy="no", **{**usual, **changed})
    return transformers.Trainer(network, args, train_dataset=dataset, data_collator=dataset.collate)


class Module(lightning.LightningModule):
    """The same network in Lightning."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def training_step(self, batch: dict[str, Any], index: int) -> Any:
        labels = batch.pop("labels")
        return F.cross_entropy(self.network(**batch).logits, labels)

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=5e-5, weight_decay=0.0)


def seconds(host: str, attached: bool, network: nn.Module, dataset: Any, steps: int = 8) -> float:
    """Return the time of a training step."""
    network = copy.deepcopy(network)
    if host == "Trainer":
        trainer = make_trainer(network, dataset, max_steps=steps, logging_strategy="no")
        if attached:
            huggingface.attach(trainer)
        begin = time.perf_counter()
        trainer.train()
        return (time.perf_counter() - begin) / steps
    callbacks = [DeelboCallback(network="network", num_data=len(dataset))] if attached else []
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    fit = lightning.Trainer(max_steps=steps, accelerator="cpu", callbacks=callbacks, **quiet)
    loader = DataLoader(dataset, 16, collate_fn=dataset.collate)
    begin = time.perf_counter()
    fit.fit(Module(network), loader)
    return (time.perf_counter() - begin) / steps


def overhead(data: Path) -> None:
    """Print the time of a step in both hosts."""
    network, dataset, _ = load(data, 400)
    for host in ("Trainer", "Lightning"):
        found: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(5):
            for attached in (False, True):
                found[attached].append(seconds(host, attached, network, dataset))
        plain, ours = min(found[False]), min(found[True])
        print(f"| {host} | {1000 * plain:.0f} ms | {1000 * ours:.0f} ms | {ours / plain:.2f} |", flush=True)


def compare(data: Path, out: Path, texts: int, epochs: int) -> None:
    """Print accuracy, NLL and time of the Trainer alone and with deelbo."""
    runs = [(False, decay, 5e-5) for decay in (0.0, 0.01, 0.1)] + [(True, 0.0, rate) for rate in (5e-5, 2e-4, 5e-4)]
    for attached, decay, rate in runs:
        file = out / "hosts" / f"{texts}-{epochs}-{attached}-{decay}-{rate}.json"
        if not file.exists():
            network, dataset, test = load(data, texts)
            changed = {"num_train_epochs": epochs, "learning_rate": rate, "weight_decay": decay}
            trainer = make_trainer(network, dataset, **changed)
            handle = huggingface.attach(trainer) if attached else None
            begin = time.perf_counter()
            trainer.train()
            row: dict[str, Any] = {"seconds": time.perf_counter() - begin}
            logits = torch.as_tensor(trainer.predict(test).predictions).double()
            row |= compute_metrics("categorical", logits.softmax(1), labels_of(test))
            row |= {} if handle is None else handle.objective.summary()
            write_json(file, row)
        row = read_json(file)
        name = "with deelbo" if attached else f"alone, weight decay {decay:g}"
        shown = f"{row['accuracy']:.1%} | {row['nll']:.3f} | {row['ece']:.3f} | {row['seconds']:.0f} s"
        print(f"| {name}, rate {rate:g} | {shown} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["overhead", "trainer"])
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path, nargs="?", default=Path("."))
    parser.add_argument("--texts", type=int, default=400)
    parser.add_argument("--epochs", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.what == "overhead":
        overhead(arguments.data)
    else:
        compare(arguments.data, arguments.out, arguments.texts, arguments.epochs)


if __name__ == "__main__":
    main()
