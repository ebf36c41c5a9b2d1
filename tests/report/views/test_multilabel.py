"""What the report shows of several labels."""

import json
from types import SimpleNamespace

import pytest
import torch

from deelbo.data.examples import Examples
from deelbo.report.views import VIEWS

VIEW = VIEWS["bernoulli"]
PROBABILITIES = torch.tensor([[0.9, 0.2, 0.1], [0.6, 0.7, 0.2], [0.1, 0.8, 0.3]], dtype=torch.float64)
LABELS = torch.tensor([[1, 0, 0], [0, 1, 0], [1, 0, 0]])
TEXTS = SimpleNamespace(examples=Examples(list("abc"), LABELS.tolist(), ["x", "y", "z"]))


def test_details_counted_by_hand():
    details = VIEW.details(PROBABILITIES, LABELS, TEXTS)
    assert details["labels"] == [
        # By rank: right, wrong, right, so precision 1 at the first and 2/3 at the second.
        {"examples": 2, "said": 2, "right": 1, "average_precision": pytest.approx((1 + 2 / 3) / 2)},
        {"examples": 1, "said": 2, "right": 1, "average_precision": pytest.approx(1 / 2)},
        {"examples": 0, "said": 0, "right": 0, "average_precision": None},
    ]
    assert [(m["name"], m["label"], m["said"], m["confidence"]) for m in details["mistakes"]] == [
        ("z", 0, False, pytest.approx(0.9)),  # the most confident first
        ("z", 1, True, pytest.approx(0.8)),
        ("y", 0, True, pytest.approx(0.6)),
    ]
    filled = [(row["examples"], row["accuracy"]) for row in details["reliability"] if row["examples"]]
    # Bins of 1/15: 0.1 twice, 0.2 twice and 0.3, then 0.6, 0.7, 0.8 and 0.9.
    assert sum(number for number, _ in filled) == 9
    assert [share for _, share in filled[-4:]] == [0, 1, 0, 1]
    json.dumps(details, allow_nan=False)


def test_frequent_labels_come_first():
    details = VIEW.details(PROBABILITIES, LABELS, TEXTS)
    facts = VIEW.facts(details, ["rare", "some", "none"])
    assert [name for name, _ in facts["labels"]] == ["rare", "some", "none"]
    turned = {**details, "labels": details["labels"][::-1]}
    assert [name for name, _ in VIEW.facts(turned, ["a", "b", "c"])["labels"]] == ["c", "b", "a"]
    assert "probability of a label" in facts["reliability"]
