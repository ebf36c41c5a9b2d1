"""What the views of test results share."""

import base64
import io
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from PIL import Image
from torchmetrics.functional.classification import multiclass_calibration_error

from deelbo.data.examples import Examples
from deelbo.data.images import ImageFormat, ImageSet, ImageStore
from deelbo.likelihoods import LIKELIHOODS
from deelbo.report import views
from deelbo.report.views import VIEWS
from deelbo.report.views.base import reliability, shown_example
from shared.pictures import picture


def test_reliability_gives_the_calibration_error():
    torch.manual_seed(0)
    probabilities, labels = torch.randn(500, 4).double().softmax(1), torch.randint(4, (500,))
    confidences, predicted = probabilities.max(1)
    bins = reliability(confidences, predicted == labels)
    assert sum(row["examples"] for row in bins) == 500
    ece = sum(row["examples"] / 500 * abs(row["confidence"] - row["accuracy"]) for row in bins)
    expected = multiclass_calibration_error(probabilities, labels, 4, n_bins=15)
    torch.testing.assert_close(torch.tensor(ece), expected.double(), rtol=1e-5, atol=1e-6, check_dtype=False)


def test_bins_counted_by_hand():
    rows = reliability(torch.tensor([0.0, 0.05, 1.0, 0.97]), torch.tensor([False, True, True, False]))
    assert len(rows) == 15
    assert rows[0] == {"examples": 2, "confidence": pytest.approx(0.025), "accuracy": 0.5}
    assert rows[-1] == {"examples": 2, "confidence": pytest.approx(0.985), "accuracy": 0.5}
    assert all(row == {"examples": 0, "confidence": 0.0, "accuracy": 0.0} for row in rows[1:-1])


def test_a_text_is_shown_with_its_beginning():
    texts = SimpleNamespace(
        examples=Examples(["short", "x" * 280, "y" * 281], [0, 0, 0], ["/a/b/c.csv row 1", "d", "e"])
    )
    assert shown_example(texts, 0) == {"name": "b/c.csv row 1", "text": "short"}
    assert shown_example(texts, 1)["text"] == "x" * 280
    assert shown_example(texts, 2)["text"] == "y" * 279 + "…"


@pytest.mark.parametrize("channels", [1, 3])
def test_an_image_is_shown_small(channels):
    half = (0.5,) * channels
    image_format = ImageFormat(320, half, half, channels=channels)
    examples = Examples([picture("red", size=(500, 400))], [0], ["/data/test/red/0.png"])
    shown = shown_example(ImageSet(ImageStore(examples, image_format), image_format), 0)
    assert shown["name"] == "red/0.png"
    beginning, _, content = shown["image"].partition(",")
    assert beginning == "data:image/jpeg;base64"
    image = Image.open(io.BytesIO(base64.b64decode(content)))
    assert image.size == (160, 160)
    if channels == 3:
        assert image.getpixel((80, 80)) == pytest.approx((220, 50, 40), abs=8)


def test_there_is_a_view_for_every_likelihood():
    assert VIEWS.names() == LIKELIHOODS.names()
    for name in VIEWS:
        assert (Path(views.__file__).parent / VIEWS[name].template).is_file()
