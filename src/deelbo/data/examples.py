"""Labelled examples before they are decoded or tokenised, and subsets of them by class."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch


@dataclass
class Examples:
    """What a dataset is made of.

    Args:
        sources: Paths of images, images in memory (PIL or encoded bytes), or texts.
        labels: Class of each, as an index.
        names: How each is called in messages: a path, or a file and its row.
    """

    sources: list[Any]
    labels: list[int]
    names: list[str]

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: Iterable[int]) -> Examples:
        """Return some of them."""
        order = list(indices)
        return Examples(
            [self.sources[i] for i in order], [self.labels[i] for i in order], [self.names[i] for i in order]
        )


@dataclass
class Data:
    """A classification task.

    Args:
        kind: "image" or "text".
        classes: Names of the labels.
        train: Training examples.
        test: Test examples, if there are any.
        notes: What the reader of the data wants to tell.
        skipped: Names of what was left out as bad.
    """

    kind: str
    classes: list[str]
    train: Examples
    test: Examples | None = None
    notes: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def checked(self) -> Data:
        """Return the data if a classifier can be trained on them.

        Raises:
            ValueError: If a class has no training example, or there is a single class.
        """
        if len(self.classes) == 1:
            raise ValueError(f"a single class ({self.classes[0]}): a classifier needs at least two")
        check_classes(self.train, self.classes)
        return self

    def fingerprint(self) -> str:
        """Return a hash of the classes, the labels and what the training examples are, to notice changed data."""
        digest = hashlib.sha256(repr((self.kind, self.classes, self.train.labels)).encode())
        for source in self.train.sources:
            content = _content(source)
            digest.update(len(content).to_bytes(8, "big"))  # so that "ab", "c" is not "a", "bc"
            digest.update(content)
        return digest.hexdigest()[:16]


def check_classes(examples: Examples, classes: Sequence[str]) -> None:
    """Raise a ValueError if a class has no example."""
    counts = Counter(examples.labels)
    if empty := [name for i, name in enumerate(classes) if not counts[i]]:
        raise ValueError(f"no training example of class {', '.join(empty)}")


def _content(source: Any) -> bytes:
    if isinstance(source, Path):
        name = source.name.encode(errors="surrogateescape") + b"\0"
        try:
            return name + source.read_bytes()
        except OSError:  # told, or left out, by who decodes it
            return name
    return source if isinstance(source, bytes) else source.encode() if isinstance(source, str) else source.tobytes()


def index_labels(train: Sequence[str], test: Sequence[str] | None) -> tuple[list[str], list[int], list[int] | None]:
    """Turn names of labels into indices; numbers are ordered as numbers.

    Raises:
        ValueError: If the test labels have one that training never saw.
    """
    classes = sorted(set(train), key=lambda name: (natural(name), name))
    index = {name: i for i, name in enumerate(classes)}
    if test is not None and (unseen := sorted(set(test) - set(classes), key=natural)):
        raise ValueError(f"the test set has labels that training never saw: {', '.join(unseen)}")
    return classes, [index[name] for name in train], None if test is None else [index[name] for name in test]


def natural(name: str) -> list[tuple[int, int, str]]:
    """Sort key under which 2 comes before 10."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]


def stratified_subset(labels: Sequence[int], number: int, seed: int) -> list[int]:
    """Return indices of a random subset with the classes' proportions kept, each class at least once.

    Args:
        labels: Of all examples.
        number: How many to take.
        seed: Of the choice.

    Raises:
        ValueError: If there are fewer examples, or fewer places than classes.
    """
    counts = Counter(labels)
    if not len(counts) <= number <= len(labels):
        raise ValueError(f"a subset of {number} examples: choose between {len(counts)} (classes) and {len(labels)}")
    shares = {label: number * count / len(labels) for label, count in counts.items()}
    quotas = {label: max(1, int(share)) for label, share in shares.items()}
    # Places left over go to the largest remainders; places too many come from the classes that have most.
    while (missing := number - sum(quotas.values())) != 0:
        step = 1 if missing > 0 else -1
        able = [label for label in sorted(counts) if (quotas[label] < counts[label] if step > 0 else quotas[label] > 1)]
        chosen = max(able, key=lambda label: step * (shares[label] - quotas[label]))
        quotas[chosen] += step
    generator = torch.Generator().manual_seed(seed)
    chosen_indices: list[int] = []
    for label in sorted(counts):
        members = [i for i, other in enumerate(labels) if other == label]
        order = torch.randperm(len(members), generator=generator)[: quotas[label]]
        chosen_indices += [members[i] for i in order.tolist()]
    return sorted(chosen_indices)


def split(data: Data, train_size: int | None, test_fraction: float | None, seed: int) -> Data:
    """Hold a test set out, if asked, then take a subset of what is left for training; both by class.

    Args:
        data: Whole.
        train_size: Training examples to use; None for all.
        test_fraction: Share of the training examples to test on; None for none.
        seed: Of both choices.

    Raises:
        ValueError: If there is a test set already, or too few examples.
    """
    train, test = data.train, data.test
    if test_fraction is not None:
        if test is not None:
            raise ValueError("--test-fraction with data that have a test set")
        if not 0 < test_fraction < 1:
            raise ValueError(f"--test-fraction {test_fraction:g} is not between 0 and 1")
        number, classes = round(test_fraction * len(train)), len(data.classes)
        if not classes <= number <= len(train) - classes:
            raise ValueError(f"--test-fraction {test_fraction:g}: {number} of {len(train)} for {classes} classes")
        held = set(stratified_subset(train.labels, number, seed))
        test = train.take(sorted(held))
        train = train.take(i for i in range(len(train)) if i not in held)
    if train_size is not None:
        if train_size > len(train):
            raise ValueError(f"--train-size {train_size}, but there are {len(train)} training examples")
        train = train.take(stratified_subset(train.labels, train_size, seed))
    return replace(data, train=train, test=test).checked()
