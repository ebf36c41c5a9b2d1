"""Confidence on other inputs."""

import pytest
import torch

from deelbo.report.confidence import confidence_on


def test_facts():
    probabilities = torch.tensor([[0.95, 0.05], [0.5, 0.5], [0.3, 0.7], [0.99, 0.01]], dtype=torch.float64)
    facts = confidence_on(probabilities, ["cat", "dog"], usual=[1.0, 1.0])
    assert facts["inputs"] == 4
    assert facts["mean"] == pytest.approx((0.95 + 0.5 + 0.7 + 0.99) / 4)
    assert facts["above"] == 0.5
    assert facts["predicted"] == [("cat", 3), ("dog", 1)]
    assert sum(facts["shares"]) == pytest.approx(1)
    assert facts["auroc"] == 1
    assert confidence_on(probabilities, ["cat", "dog"], usual=[0.95, 0.5, 0.7, 0.99])["auroc"] == 0.5  # the same ones
    assert "auroc" not in confidence_on(probabilities, ["cat", "dog"])
