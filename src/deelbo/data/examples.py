"""Labelled examples before they are decoded or tokenised, and subsets of them by class."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from deelbo._wording import counted, some_of
from deelbo.data.targets import Targets


@dataclass
class Examples:
    """Inputs (not yet decoded or tokenised) with their labels.

    Args:
        inputs: Paths of images, images in memory (PIL or encoded bytes), or texts.
        labels: For each example its class index, its row of 0 and 1, or its row of numbers; see `Targets`.
        names: Name of each example for messages: a path, or a file with the number of a row.
    """

    inputs: list[Any]
    labels: list[Any]
    names: list[str]

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: Iterable[int]) -> Examples:
        """Return the examples at these indices."""
        order = list(indices)
        return Examples(
            [self.inputs[i] for i in order], [self.labels[i] for i in order], [self.names[i] for i in order]
        )


@dataclass
class Data:
    """Examples to train and to test on.

    Args:
        kind: Kind of the inputs, "image" or "text".
        targets: What is to be predicted.
        train: Training examples.
        test: Test examples, if there are any.
        notes: Sentences for the user about what was read.
        skipped: Names of the examples that were left out because they are incomplete.
    """

    kind: str
    targets: Targets
    train: Examples
    test: Examples | None = None
    notes: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def describe(self) -> str:
        """Return a line with the task, the numbers of examples and what is predicted."""
        test = f", {len(self.test):,} to test on" if self.test else ""
        return f"{self.targets.task}: {counted(len(self.train), self.kind)}, {self.targets.describe()}{test}"

    def checked(self) -> Data:
        """Return the data if a network can be trained on them, with a note on labels that no example has.

        Raises:
            ValueError: If a class has no training example, or there is a single class.
        """
        targets = self.targets
        if targets.task == "classification" and len(targets.names) == 1:
            raise ValueError(f"a single class ({targets.names[0]}): a classifier needs at least two")
        check_classes(self.train, targets)
        if lost := targets.missing(self.train.labels):
            self.notes.append(f"no training example has the label {some_of(lost)}")
        return self

    def fingerprint(self) -> str:
        """Return a hash of the targets and the content of the training examples, to notice changed data."""
        task = () if self.targets.task == "classification" else (self.targets.task,)
        digest = hashlib.sha256(repr((self.kind, self.targets.names, self.train.labels, *task)).encode())
        for item in self.train.inputs:
            name = item.name.encode(errors="surrogateescape") + b"\0" if isinstance(item, Path) else b""
            content = name + content_of(item)
            digest.update(len(content).to_bytes(8, "big"))  # so that "ab", "c" and "a", "bc" have different hashes
            digest.update(content)
        return digest.hexdigest()[:16]


def check_classes(examples: Examples, targets: Targets) -> None:
    """Raise a ValueError if a class has no example."""
    if targets.task == "classification" and (empty := targets.missing(examples.labels)):
        raise ValueError(f"no training example of class {', '.join(empty)}")


def content_of(item: Any) -> bytes:
    """Return the content of an input: a file's, whatever its name, a text's, or an image's in memory."""
    if isinstance(item, Path):
        try:
            return item.read_bytes()
        except OSError:  # an error, or skipped, when the image is decoded
            return b""
    return item if isinstance(item, bytes) else item.encode() if isinstance(item, str) else item.tobytes()


def stratified_subset(strata: Sequence[int], number: int, seed: int) -> list[int]:
    """Return indices of a random subset that keeps the proportions of the strata, each of them at least once.

    Args:
        strata: The group of each example, such as its class; see `Targets.strata`.
        number: How many examples to take.
        seed: Seed of the random choice.

    Raises:
        ValueError: If there are fewer examples, or more groups than examples to take.
    """
    counts = Counter(strata)
    if not len(counts) <= number <= len(strata):
        least = f"{len(counts)} (one of each class)" if len(counts) > 1 else "1"
        raise ValueError(f"a subset of {number} examples: choose between {least} and {len(strata)}")
    shares = {group: number * count / len(strata) for group, count in counts.items()}
    quotas = {group: max(1, int(share)) for group, share in shares.items()}
    # Rounding leaves some too few or too many: add to the largest remainders, take from the largest classes.
    while (missing := number - sum(quotas.values())) != 0:
        step = 1 if missing > 0 else -1
        able = [group for group in sorted(counts) if (quotas[group] < counts[group] if step > 0 else quotas[group] > 1)]
        chosen = max(able, key=lambda group: step * (shares[group] - quotas[group]))
        quotas[chosen] += step
    return _random_members(strata, quotas, seed)


def equal_subset(strata: Sequence[int], per_class: int, seed: int) -> list[int]:
    """Return indices of a random subset with the same number of examples of every group.

    Args:
        strata: The group of each example, such as its class.
        per_class: How many examples of each group to take.
        seed: Seed of the random choice.

    Raises:
        ValueError: If a group has fewer examples.
    """
    counts = Counter(strata)
    if not 1 <= per_class <= min(counts.values()):
        raise ValueError(f"{per_class} examples of each class: choose between 1 and {min(counts.values())}")
    return _random_members(strata, dict.fromkeys(counts, per_class), seed)


def _random_members(strata: Sequence[int], quotas: Mapping[int, int], seed: int) -> list[int]:
    """Return indices of a random choice of so many members of each group."""
    generator = torch.Generator().manual_seed(seed)
    chosen: list[int] = []
    for group in sorted(quotas):
        members = [i for i, other in enumerate(strata) if other == group]
        order = torch.randperm(len(members), generator=generator)[: quotas[group]]
        chosen += [members[i] for i in order.tolist()]
    return sorted(chosen)


def split(
    data: Data, train_size: int | None, test_fraction: float | None, seed: int, per_class: int | None = None
) -> Data:
    """Hold out a test set, if asked, then take a training subset of the rest; both keep the proportions of classes.

    Args:
        data: All examples.
        train_size: Number of training examples to use; None for all.
        test_fraction: Share of the training examples to test on; None to hold none out.
        seed: Seed of both random choices.
        per_class: Number of training examples of each class to use, instead of `train_size`; None for all.

    Raises:
        ValueError: If there is a test set already, there are too few examples, or no classes to count by.
    """
    train, test = data.train, data.test
    if test_fraction is not None:
        if test is not None:
            raise ValueError(f"test_fraction={test_fraction:g}, but the data have a test set already")
        if not 0 < test_fraction < 1:
            raise ValueError(f"test_fraction={test_fraction:g} is not between 0 and 1")
        strata = data.targets.strata(train.labels)
        number, groups = round(test_fraction * len(train)), len(set(strata))
        if not groups <= number <= len(train) - groups:
            least = f"{groups} (one of each class)" if groups > 1 else "1"
            raise ValueError(
                f"test_fraction={test_fraction:g} would hold out {number} of {len(train)} examples: test set and "
                f"training set need at least {least}"
            )
        if single := [data.targets.names[group] for group, count in Counter(strata).items() if count == 1]:
            raise ValueError(f"test_fraction={test_fraction:g}: there is a single example of class {some_of(single)}")
        held_out = set(stratified_subset(strata, number, seed))
        test = train.take(sorted(held_out))
        train = train.take(i for i in range(len(train)) if i not in held_out)
    if train_size is not None:
        if train_size > len(train):
            raise ValueError(f"train_size={train_size}, but there are {len(train)} training examples")
        train = train.take(stratified_subset(data.targets.strata(train.labels), train_size, seed))
    if per_class is not None:
        if train_size is not None:
            raise ValueError(f"train_size={train_size} and per_class={per_class} contradict each other: give one")
        if data.targets.task != "classification":
            raise ValueError(f"per_class={per_class} is for classes, but the task is {data.targets.task}")
        counts = Counter(train.labels)
        if few := [f"{data.targets.names[c]} ({n})" for c, n in sorted(counts.items()) if n < per_class]:
            raise ValueError(f"per_class={per_class}, but there are fewer training examples of {some_of(few)}")
        train = train.take(equal_subset(train.labels, per_class, seed))
    return replace(data, train=train, test=test, notes=list(data.notes)).checked()
