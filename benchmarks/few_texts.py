"""Pairs and blends on few texts, compared on training rows that are not trained on, so that no test set is used.

    python benchmarks/few_texts.py TABLE --per-class 10 --seeds 1,2,3 [--ways classes,pairs] [--blends 0.8,0.6,0.4]
        [--steps 200]

TABLE is a table of texts, such as DATA/trec/train.csv. For each seed a number of texts of each class is drawn to train
on, and up to 1,000 others to compare on; MiniLM is trained by steps of 32, in bfloat16 (autocast), once by classes at
the rate 0.03 and once by pairs at the rate 0.01. Each network is also taken back towards the pretrained weights, as
`blend` does it. Printed are accuracy, NLL as the run is left (with its temperature), and NLL at the temperature that is
best for these rows; the accuracy on the rows that were trained on; and, of a blend, which part of the variance of their
features lies within classes, by which the default chooses its share. One thread.
"""

from __future__ import annotations

import argparse
import copy
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from deelbo import finetune
from deelbo._memory import keep_memory
from deelbo._modules import eval_mode
from deelbo.data import Data, Examples
from deelbo.likelihoods import Categorical
from deelbo.likelihoods.temperature import held_out_factor
from deelbo.result import Result
from deelbo.specs import DataSpec, ModelSpec
from deelbo.training.batches import in_order, network_output
from deelbo.training.calibration import Calibration
from deelbo.training.last_layer import LastLayer, spread, usual_margin
from deelbo.training.start import Start

WAYS = {"classes": (False, 0.03), "pairs": (True, 0.01)}  # whether by pairs, and the rate
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


State = dict[str, Tensor]


@torch.no_grad()
def take_back(result: Result, initial: State, trained: State, share: float, train: Dataset) -> float:
    """Take a trained network back towards its initial weights, fit the classifier anew, and return the spread there."""
    blended = {name: torch.lerp(initial[name], trained[name], share) for name, _ in result.model.named_parameters()}
    result.model.load_state_dict({**trained, **blended})
    layer = result.model.get_submodule(result.start["classifier"])
    assert isinstance(layer, nn.Linear)
    last, labels = LastLayer(layer, usual_margin(Start(**result.start).information)), []
    with eval_mode(result.model), torch.autocast("cpu", torch.bfloat16), last.features() as found:
        for inputs, targets in in_order(train, 32, torch.device("cpu")):
            network_output(result.model, inputs)
            labels.append(targets)
    last.fit(torch.cat(found), torch.cat(labels), Categorical())
    result.calibration = Calibration()
    return spread(torch.cat(found), torch.cat(labels))


def show(title: str, result: Result, train: Dataset, dataset: Dataset, labels: Tensor, within: str = "") -> None:
    """Print a row of the table."""
    logits = result.raw_predictions(dataset)
    factor = held_out_factor(logits, labels, Categorical())
    left, best = result.evaluate(dataset), result.evaluate(dataset, temperature=1 / factor)
    row = f"{100 * left['accuracy']:.1f} | {left['nll']:.3f} | {best['nll']:.3f} | {1 / factor:.2f}"
    row += f" | {100 * result.evaluate(train)['accuracy']:.1f} | {within}"
    print(f"| {title} | {row} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--per-class", type=int, default=10)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--blends", default="0.8,0.6,0.4")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keep_memory()
    everything = DataSpec(str(arguments.table)).read()
    columns = "NLL | NLL, best temperature | best temperature | training rows, % | within classes, %"
    print(f"| | seed | accuracy, % | {columns} |\n|{' --- |' * 8}")
    for seed in map(int, arguments.seeds.split(",")):
        data, others = divide(everything, arguments.per_class, seed)
        for way in arguments.ways.split(","):
            pairs, rate = WAYS[way]
            network, reader = ModelSpec("offline:minilm", max_length=64).load(data, seed)
            train, dataset, labels = reader.dataset(data.train), reader.dataset(others), torch.tensor(others.labels)
            initial = copy.deepcopy(network.state_dict())
            result = finetune(
                network,
                train,
                device="cpu",
                precision="bf16",
                steps=arguments.steps,
                batch_size=32,
                learning_rates=(rate,),
                pairs=pairs,
                blend=1.0,
                seed=seed,
            )
            show(f"{way} | {seed}", result, train, dataset, labels)
            trained = copy.deepcopy(result.model.state_dict())
            for share in map(float, arguments.blends.split(",") if arguments.blends else ()):
                within = f"{100 * take_back(result, initial, trained, share, train):.0f}"
                show(f"{way}, blend {share:g} | {seed}", result, train, dataset, labels, within)


if __name__ == "__main__":
    main()
