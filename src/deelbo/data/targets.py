"""What is to be predicted: a class, several labels or some numbers for each example, recognised from the data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from deelbo._wording import counted, natural, some_of
from deelbo.likelihoods import likelihood_of_task

SEPARATOR = "|"  # between the labels of an example
FEW_CLASSES = 20  # up to so many different whole numbers are taken for classes
YES_OR_NO = {"0": 0, "0.0": 0, "false": 0, "1": 1, "1.0": 1, "true": 1}  # in a column for each label, in lower case

RawLabels = list[list[str]]  # for each example one text for each label column; "" where it is missing


@dataclass(frozen=True)
class Targets:
    """What is to be predicted for each example.

    Args:
        task: "classification", "regression" or "multilabel".
        names: Names of the classes, of the numbers, or of the labels.
    """

    task: str
    names: list[str]

    @property
    def likelihood(self) -> str:
        """Name of the likelihood of such targets."""
        return likelihood_of_task(self.task)

    @property
    def num_outputs(self) -> int:
        """Number of outputs that a network must give for an example."""
        return len(self.names)

    def describe(self) -> str:
        """Return what is predicted in a few words, such as "10 classes"."""
        words = {"classification": "class", "multilabel": "label"}
        if self.task in words:
            return counted(len(self.names), words[self.task])
        number = f"{len(self.names)} numbers" if len(self.names) > 1 else "one number"
        return f"{number} ({some_of(self.names)})"

    def strata(self, labels: Sequence[Any]) -> list[int]:
        """Return the group of each example, whose proportions subsets keep: its class, or one group for all."""
        return list(labels) if self.task == "classification" else [0] * len(labels)

    def missing(self, labels: Sequence[Any]) -> list[str]:
        """Return the names of the classes or labels that no example has."""
        if self.task == "classification":
            present = set(labels)
        elif self.task == "multilabel":
            present = {i for row in labels for i, value in enumerate(row) if value}
        else:
            return []
        return [name for i, name in enumerate(self.names) if i not in present]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"task": self.task, "names": self.names}


def as_tensor(labels: Sequence[Any]) -> Tensor:
    """Return the labels of some examples as a tensor: class indices, rows of 0 and 1, or numbers in float64."""
    tensor = torch.tensor(list(labels))
    return torch.tensor(list(labels), dtype=torch.float64) if tensor.is_floating_point() else tensor


def recognise_task(raw: RawLabels) -> tuple[str, str]:
    """Return the task that label columns stand for, and the reason why it was recognised as such.

    Args:
        raw: Labels of the training examples, as texts.
    """
    values = [[text for text in column if text] for column in zip(*raw, strict=True)]
    flat = [text for column in values for text in column]
    if len(values) > 1:
        if {text.lower() for text in flat} <= set(YES_OR_NO):
            return "multilabel", "several columns of 0 and 1"
        return "regression", "several label columns"
    if any(SEPARATOR in text for text in flat):
        return "multilabel", f'labels are lists, or separated by "{SEPARATOR}"'
    numbers = [number for text in flat if (number := _number(text)) is not None]
    if len(numbers) <= len(flat) / 2:  # above, names among them are holes in the data, which are refused or skipped
        return "classification", "labels are names"
    if not all(number.is_integer() for number in numbers):
        return "regression", "labels are numbers with decimals"
    different = len(set(numbers))
    many, mostly_single = different > FEW_CLASSES and different > len(flat) / 10, different > max(5, len(flat) / 2)
    if many or mostly_single:
        return "regression", f"labels are {different} different whole numbers"
    if len(numbers) < len(flat):
        return "classification", "labels are names"
    return "classification", f"labels are {different} different whole numbers"


def is_missing(labels: Sequence[str], task: str) -> bool:
    """Tell whether an example has no label; with one multi-label column, an empty text means that no label applies."""
    return not all(labels) and not (task == "multilabel" and len(labels) == 1)


def misfit(labels: Sequence[str], task: str) -> str | None:
    """Return a label of an example that does not fit the task, such as a word where a number is needed; else None."""
    if task == "regression":
        return next((text for text in labels if _number(text) is None), None)
    if task == "multilabel" and len(labels) > 1:
        return next((text for text in labels if text.lower() not in YES_OR_NO), None)
    return None


def encode(
    task: str, columns: Sequence[str], train: RawLabels, test: RawLabels | None
) -> tuple[Targets, list[Any], list[Any] | None]:
    """Turn the texts of label columns into targets.

    Args:
        task: "classification", "regression" or "multilabel".
        columns: Names of the label columns.
        train: Labels of the training examples.
        test: Labels of the test examples, if there are any.

    Returns:
        The targets, and the labels of both parts: class indices, rows of 0 and 1, or rows of numbers.

    Raises:
        ValueError: If a label does not fit the task, or the test set has one that training never saw.
    """
    encoders = {"classification": _encode_classes, "regression": _encode_numbers, "multilabel": _encode_label_sets}
    likelihood_of_task(task)  # raises an error for an unknown task
    return encoders[task](columns, train, test)


def _encode_classes(
    columns: Sequence[str], train: RawLabels, test: RawLabels | None
) -> tuple[Targets, list[Any], list[Any] | None]:
    if len(columns) > 1:
        raise ValueError(f"task='classification' takes one label column, not {', '.join(columns)}")
    classes, labels, test_labels = index_labels(
        [row[0] for row in train], None if test is None else [row[0] for row in test]
    )
    return Targets("classification", classes), labels, test_labels


def _encode_numbers(
    columns: Sequence[str], train: RawLabels, test: RawLabels | None
) -> tuple[Targets, list[Any], list[Any] | None]:
    def numbers(rows: RawLabels) -> list[list[float]]:
        return [[_required_number(text) for text in row] for row in rows]

    return Targets("regression", list(columns)), numbers(train), None if test is None else numbers(test)


def _encode_label_sets(
    columns: Sequence[str], train: RawLabels, test: RawLabels | None
) -> tuple[Targets, list[Any], list[Any] | None]:
    if len(columns) > 1:
        names = list(columns)
        for row in (*train, *(test or ())):
            if (text := misfit(row, "multilabel")) is not None:
                raise ValueError(f"task='multilabel' with several label columns takes 0 and 1, not {text!r}")

        def rows_of(rows: RawLabels) -> list[list[int]]:
            return [[YES_OR_NO[text.lower()] for text in row] for row in rows]
    else:
        sets = [_label_set(row[0]) for row in train]
        names = sorted(set().union(*sets), key=lambda name: (natural(name), name))
        if not names:
            raise ValueError("no training example has a label")
        _refuse_unseen(names, set().union(*(_label_set(row[0]) for row in test or [])))

        def rows_of(rows: RawLabels) -> list[list[int]]:
            return [[int(name in labels) for name in names] for labels in (_label_set(row[0]) for row in rows)]

    return Targets("multilabel", names), rows_of(train), None if test is None else rows_of(test)


def index_labels(train: Sequence[str], test: Sequence[str] | None) -> tuple[list[str], list[int], list[int] | None]:
    """Turn names of classes into indices; numbers are ordered as numbers.

    Raises:
        ValueError: If the test labels have one that training never saw.
    """
    classes = sorted(set(train), key=lambda name: (natural(name), name))
    index = {name: i for i, name in enumerate(classes)}
    _refuse_unseen(classes, set(test or ()))
    return classes, [index[name] for name in train], None if test is None else [index[name] for name in test]


def translate(labels: Sequence[Any], own: Targets, wanted: Targets, where: str) -> list[Any]:
    """Return labels of other data as the targets of a finished run.

    Args:
        labels: Labels of the other data.
        own: Targets that these labels stand for.
        wanted: Targets of the finished run.
        where: Name of the data, for error messages.

    Raises:
        ValueError: If a class or label was never seen in training, or there are other numbers.
    """
    if wanted.task == "regression":
        if own.num_outputs != wanted.num_outputs:
            raise ValueError(
                f"{where} has {counted(own.num_outputs, 'number')} for each example, but the run predicts "
                f"{wanted.num_outputs}: {', '.join(wanted.names)}"
            )
        if sorted(own.names) == sorted(wanted.names):  # the same columns, perhaps in another order
            return [[row[own.names.index(name)] for name in wanted.names] for row in labels]
        return list(labels)
    unused = set(own.missing(labels))
    if unknown := [name for name in own.names if name not in wanted.names and name not in unused]:
        raise ValueError(f"{where} has labels that training never saw: {some_of(unknown)}")
    index = {name: i for i, name in enumerate(wanted.names)}
    if wanted.task == "classification":
        return [index[own.names[label]] for label in labels]
    column = {name: i for i, name in enumerate(own.names)}
    return [[row[column[name]] if name in column else 0 for name in wanted.names] for row in labels]


def _refuse_unseen(known: Sequence[str], seen: set[str]) -> None:
    if unseen := sorted(seen - set(known), key=natural):
        raise ValueError(f"the test set has labels that training never saw: {some_of(unseen)}")


def _label_set(text: str) -> set[str]:
    return {part.strip() for part in text.split(SEPARATOR) if part.strip()}


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _required_number(text: str) -> float:
    number = _number(text)
    if number is None:
        raise ValueError(f"task='regression', but the label {text!r} is not a finite number")
    return number
