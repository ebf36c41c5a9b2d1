"""What the report shows of class probabilities."""

import json
from types import SimpleNamespace

import pytest
import torch
from torchmetrics.functional.classification import multiclass_confusion_matrix

from deelbo.data.examples import Examples
from deelbo.report.views import VIEWS
from deelbo.report.views.base import SHOWN
from deelbo.report.views.classification import confusion


def test_confusion_matrix():
    torch.manual_seed(0)
    predicted, labels = torch.randint(5, (2, 300))
    assert confusion(predicted, labels, 5) == multiclass_confusion_matrix(predicted, labels, 5).tolist()


PROBABILITIES = torch.tensor([[0.7, 0.3], [0.2, 0.8], [0.9, 0.1], [0.4, 0.6]])
LABELS = torch.tensor([0, 0, 1, 1])
TEXTS = SimpleNamespace(examples=Examples(list("abcd"), LABELS.tolist(), ["w", "x", "y", "z"]))


def test_details_counted_by_hand():
    details = VIEWS["categorical"].details(PROBABILITIES, LABELS, TEXTS)
    assert details["confusion"] == [[1, 1], [1, 1]]
    assert [row["examples"] for row in details["reliability"]] == [0] * 9 + [1, 1, 0, 1, 1, 0]
    assert [row["accuracy"] for row in details["reliability"] if row["examples"]] == [1, 1, 0, 0]
    first, second = details["mistakes"]  # the most confident first
    assert first == {"label": 1, "predicted": 0, "confidence": pytest.approx(0.9), "name": "y", "text": "c"}
    assert second == {"label": 0, "predicted": 1, "confidence": pytest.approx(0.8), "name": "x", "text": "b"}
    json.dumps(details, allow_nan=False)


def test_at_most_twelve_mistakes_are_shown():
    many = SimpleNamespace(examples=Examples(["t"] * 40, [0] * 40, ["n"] * 40))
    wrong = torch.tensor([[0.1, 0.9]] * 40)
    assert len(VIEWS["categorical"].details(wrong, torch.zeros(40).long(), many)["mistakes"]) == SHOWN == 12


def test_the_most_frequent_confusions_come_first():
    bins = VIEWS["categorical"].details(PROBABILITIES, LABELS, TEXTS)["reliability"]
    assessment = {"confusion": [[5, 2, 0], [7, 1, 1], [0, 0, 9]], "reliability": bins}
    facts = VIEWS["categorical"].facts(assessment, ["cat", "dog", "fish"])
    assert facts["confusions"] == [("dog", "cat", 7), ("cat", "dog", 2), ("dog", "fish", 1)]
    assert facts["matrix"]
    assert facts["reliability"].startswith("<svg")
    wide = {"confusion": [[0] * 13 for _ in range(13)], "reliability": bins}
    assert not VIEWS["categorical"].facts(wide, list("abcdefghijklm"))["matrix"]
