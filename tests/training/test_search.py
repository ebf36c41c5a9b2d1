"""The search for a learning rate."""

import warnings

import pytest
import torch
from torch import nn

import deelbo
from deelbo import AllDivergedError, Settings, events
from deelbo.training.search import planned_steps, rungs
from shared.digits import FAST, digits, quick


def test_grid_keeps_the_best_candidate_by_copy():
    """The authors' search returned the last run, each starting where the previous one ended."""
    both = quick(lr_search="grid")
    alone = {rate: quick(lr_search="grid", learning_rates=(rate,)) for rate in (0.1, 0.01)}
    assert both.values[60] == {rate: result.objective for rate, result in alone.items()}
    best = max(alone, key=lambda rate: alone[rate].objective)
    assert both.learning_rate == best
    for p, q in zip(both.model.parameters(), alone[best].model.parameters(), strict=True):
        assert torch.equal(p, q)
    swapped = quick(lr_search="grid", learning_rates=(0.01, 0.1))
    assert swapped.learning_rate == best
    assert swapped.objective == both.objective


def test_race_costs_less_and_its_winner_is_the_grids_run():
    settings = Settings(learning_rates=(1, 0.1, 0.01, 0.001), steps=100)
    ladder = rungs(settings)
    assert [(r.step, r.survivors, r.cooling) for r in ladder] == [(14, 2, 6), (25, 1, 4), (100, 1, 0)]
    assert planned_steps(Settings(steps=6000)) == 1.59 * 6000
    assert [r.step for r in rungs(Settings(learning_rates=(0.1, 0.01), steps=6000))] == [1500, 6000]
    assert len(rungs(Settings(steps=40))) == 1  # too short to tell early
    steps = []
    race = quick(learning_rates=(0.1, 0.03, 0.01, 0.001), steps=100, listener=steps.append)
    assert (
        sum(isinstance(event, events.StepTaken) for event in steps)
        == 4 * 20 + 2 * 15 + 75
        == planned_steps(race.settings)
    )
    assert list(race.values) == [14, 25, 100]
    grid = quick(learning_rates=(race.learning_rate,), steps=100, lr_search="grid")
    assert race.objective == grid.objective


def test_a_diverging_candidate_is_dropped():
    class Explodes(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.fc = nn.Linear(64, 8), nn.Linear(8, 10)

        def forward(self, x):
            return self.fc(self.body(x) * torch.where(self.fc.bias.abs().sum() > 40, torch.nan, 1.0))

    def run(rates):
        torch.manual_seed(0)
        return deelbo.finetune(Explodes(), digits()[0], **{**FAST, "learning_rates": rates, "clip": None})

    with pytest.warns(UserWarning, match=r"learning rate 1e\+06 diverged"):
        assert run((1e6, 0.01)).learning_rate == 0.01
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(AllDivergedError, match="try smaller ones"):
            run((1e6, 1e7))
