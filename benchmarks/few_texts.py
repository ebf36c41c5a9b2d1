"""Pairs before classes on few texts, compared on training rows that are not trained on, so that no test set is used.

    python benchmarks/few_texts.py TABLE --per-class 10 --seeds 1,2,3 [--ways classes,pairs]

TABLE is a table of texts, such as DATA/trec/train.csv. For each seed a number of texts of each class is drawn to train
on, and up to 1,000 others to compare on; MiniLM is trained by 200 steps of 32 at the rate 0.03, in bfloat16 (autocast),
once by classes and once by pairs. Printed are accuracy, NLL as the run is left (with its temperature), and NLL at the
temperature that is best for these rows. One thread.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import torch

from deelbo import finetune
from deelbo.data import Data, Examples
from deelbo.likelihoods import Categorical
from deelbo.likelihoods.temperature import held_out_factor
from deelbo.specs import DataSpec, ModelSpec

WAYS = {"classes": False, "pairs": True}
MOST = 1000  # rows to compare on


def divide(data: Data, per_class: int, seed: int) -> tuple[Data, Examples]:
    """Return some rows of each class to train on, and others to compare on."""
    order = list(range(len(data.train)))
    random.Random(seed).shuffle(order)
    seen: Counter[int] = Counter()
    chosen: list[int] = []
    others: list[int] = []
    for i in order:
        label = data.train.labels[i]
        seen[label] += 1
        (chosen if seen[label] <= per_class else others).append(i)
    return replace(data, train=data.train.take(chosen), test=None), data.train.take(others[:MOST])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--per-class", type=int, default=10)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--ways", default=",".join(WAYS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    everything = DataSpec(str(arguments.table)).read()
    print("| | seed | accuracy, % | NLL | NLL, best temperature | best temperature |")
    print("| --- | --- | --- | --- | --- | --- |")
    for seed in map(int, arguments.seeds.split(",")):
        data, others = divide(everything, arguments.per_class, seed)
        for way in arguments.ways.split(","):
            network, reader = ModelSpec("offline:minilm", max_length=64).load(data, seed)
            result = finetune(
                network,
                reader.dataset(data.train),
                device="cpu",
                precision="bf16",
                steps=200,
                batch_size=32,
                learning_rates=(0.03,),
                pairs=WAYS[way],
                seed=seed,
            )
            dataset, labels = reader.dataset(others), torch.tensor(others.labels)
            logits = result.raw_predictions(dataset)
            factor = held_out_factor(logits, labels, Categorical())
            left, best = result.evaluate(dataset), result.evaluate(dataset, temperature=1 / factor)
            row = f"{100 * left['accuracy']:.1f} | {left['nll']:.3f} | {best['nll']:.3f} | {1 / factor:.2f}"
            print(f"| {way} | {seed} | {row} |", flush=True)


if __name__ == "__main__":
    main()
