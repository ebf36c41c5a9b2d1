"""What the report shows of class probabilities."""

import torch
from torchmetrics.functional.classification import multiclass_confusion_matrix

from deelbo.report.views.classification import confusion


def test_confusion_matrix():
    torch.manual_seed(0)
    predicted, labels = torch.randint(5, (2, 300))
    assert confusion(predicted, labels, 5) == multiclass_confusion_matrix(predicted, labels, 5).tolist()
