"""The recipes of CONTRIBUTING.md work as they stand."""

import re
from pathlib import Path

import pytest
import torch

import deelbo
from deelbo.metrics import METRICS, compute_metrics
from deelbo.priors import PRIORS
from shared.cases import Net

PAGE = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()
RECIPES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def registries():
    """Forget afterwards what a recipe has registered."""
    before = [(registry, dict(registry._entries)) for registry in (PRIORS, METRICS) if registry.names()]
    yield
    for registry, entries in before:
        registry._entries.clear()
        registry._entries.update(entries)


def test_a_prior(registries):
    exec(compile(RECIPES[0], "l2_mean.py", "exec"), {})
    assert "l2-mean: backbone around the mean" in PRIORS.help()
    net = Net()
    prior = deelbo.Settings(prior="l2-mean").prior_recipe().make(net, "head")
    centre = next(iter(prior.named_groups()["backbone"].mean.buffers()))
    torch.testing.assert_close(centre, torch.full_like(net.body.weight, net.body.weight.mean().item()))


def test_a_metric(registries):
    exec(compile(RECIPES[1], "brier.py", "exec"), {})
    probabilities, labels = torch.tensor([[0.5, 0.5], [0.0, 1.0]]), torch.tensor([0, 1])
    assert compute_metrics("categorical", probabilities, labels)["brier"] == pytest.approx(0.25)
