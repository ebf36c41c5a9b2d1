"""What the views of test results share."""

import torch
from torchmetrics.functional.classification import multiclass_calibration_error

from deelbo.report.views.base import reliability


def test_reliability_gives_the_calibration_error():
    torch.manual_seed(0)
    probabilities, labels = torch.randn(500, 4).double().softmax(1), torch.randint(4, (500,))
    confidences, predicted = probabilities.max(1)
    bins = reliability(confidences, predicted == labels)
    assert sum(row["examples"] for row in bins) == 500
    ece = sum(row["examples"] / 500 * abs(row["confidence"] - row["accuracy"]) for row in bins)
    expected = multiclass_calibration_error(probabilities, labels, 4, n_bins=15)
    torch.testing.assert_close(torch.tensor(ece), expected.double(), rtol=1e-5, atol=1e-6, check_dtype=False)
