"""Test results in detail."""

import json

import pytest

import deelbo
from deelbo.data import load_labelled
from deelbo.report import assess
from deelbo.report.views import VIEWS


@pytest.fixture
def tested(image_run):
    result = deelbo.load(image_run / "run")
    examples = load_labelled(str(image_run / "data"), "image", result.reader.targets)
    return result, result.reader.dataset(examples)


def test_metrics_and_details(tested):
    result, dataset = tested
    seen = []
    found = assess(result, dataset, samples=2, progress=lambda *now: seen.append(now))
    assert found["metrics"] == result.evaluate(dataset, samples=2)
    assert (found["samples"], found["examples"]) == (2, 9)
    assert [sum(row) for row in found["confusion"]] == [3, 3, 3]
    assert seen[-1] == (18, 18)
    json.dumps(found, allow_nan=False)


def test_a_likelihood_without_a_view_has_its_metrics(tested, monkeypatch):
    result, dataset = tested
    monkeypatch.delitem(VIEWS._entries, "categorical")
    assert set(assess(result, dataset)) == {"metrics", "temperature", "samples", "examples"}
