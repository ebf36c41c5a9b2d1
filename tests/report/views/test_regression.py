"""What the report shows of predicted numbers."""

import json
import math
from types import SimpleNamespace

import pytest
import torch

from deelbo.data.examples import Examples
from deelbo.likelihoods import GaussianPrediction
from deelbo.report.views import VIEWS

VIEW = VIEWS["gaussian"]
TARGETS = torch.tensor([0.5, -2.0, 3.0, 0.0], dtype=torch.float64)
PREDICTION = GaussianPrediction(
    torch.zeros(4, 1, dtype=torch.float64), torch.tensor([[1.0], [1.0], [2.0], [1.0]], dtype=torch.float64)
)
TEXTS = SimpleNamespace(examples=Examples(list("abcd"), TARGETS.tolist(), ["w", "x", "y", "z"]))


def test_details_counted_by_hand():
    details = VIEW.details(PREDICTION, TARGETS, TEXTS)
    (points,) = details["points"]
    assert points["target"] == TARGETS.tolist()
    assert points["std"] == [1.0, 1.0, 2.0, 1.0]
    assert points["rmse"] == pytest.approx(math.sqrt((0.25 + 4 + 9) / 4))
    # In units of the noise the errors are 0.5, 2, 1.5 and 0.
    shares = {row["level"]: row["share"] for row in details["coverage"]}
    assert (shares[0.1], shares[0.5], shares[0.8], shares[0.9], shares[0.95]) == (0.25, 0.5, 0.5, 0.75, 0.75)
    assert [mistake["name"] for mistake in details["mistakes"]] == ["x", "y", "w", "z"]
    assert details["mistakes"][1] == {"target": [3.0], "mean": [0.0], "std": [2.0], "name": "y", "text": "c"}
    json.dumps(details, allow_nan=False)


def test_several_numbers_and_many_points():
    number = 2500
    targets = torch.stack([torch.arange(number), -torch.arange(number)], 1).double()
    prediction = GaussianPrediction(targets + torch.tensor([0.0, 3.0]), torch.ones(number, 2, dtype=torch.float64))
    many = SimpleNamespace(examples=Examples(["t"] * number, targets.tolist(), ["n"] * number))
    details = VIEW.details(prediction, targets, many)
    first, second = details["points"]
    assert (first["rmse"], second["rmse"]) == (0.0, pytest.approx(3.0))
    assert len(first["target"]) == 1000
    assert (first["target"][0], first["target"][-1]) == (0.0, number - 1)
    assert len(details["mistakes"]) == 12
    facts = VIEW.facts(details, ["age", "height"])
    assert [(name, rmse) for name, rmse, _ in facts["scatters"]] == [("age", 0.0), ("height", pytest.approx(3.0))]
    assert "true height" in facts["scatters"][1][2]
    assert "predicted age" in facts["residuals"][0]
    assert "targets inside" in facts["coverage"]
