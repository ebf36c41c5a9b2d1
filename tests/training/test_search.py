"""The search for a learning rate."""

import math
import os
import signal
import types
import warnings

import pytest
import torch
from torch import nn

import deelbo
from deelbo import AllDivergedError, Settings, events
from deelbo.training.search import FolderStore, MemoryStore, Search, planned_steps, rungs
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
    assert [(r.step, r.survivors, r.cooling) for r in ladder] == [(12, 1, 4), (100, 1, 0)]
    assert planned_steps(Settings(steps=6000)) == 1.29 * 6000
    assert len(rungs(Settings(steps=16))) == 1  # too short to tell early
    steps = []
    race = quick(learning_rates=(0.1, 0.03, 0.01, 0.001), steps=100, listener=steps.append)
    assert sum(isinstance(event, events.StepTaken) for event in steps) == 4 * 16 + 88 == planned_steps(race.settings)
    assert list(race.values) == [12, 100]
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


class Made:
    """A candidate that trains nothing: its objective after a step is a function, and its state the step."""

    def __init__(self, rate, objective, made):
        made.append(rate)
        self.learning_rate, self._objective, self.step, self.cooled = rate, objective, 0, 0
        self.clock = {"steps": 0.0}
        self.accelerator = types.SimpleNamespace(wait_for_everyone=lambda: None)
        self.method = types.SimpleNamespace(objective_scale=2.0)

    def advance(self, until):
        while self.step < until:
            self.step += 1
            self.clock["steps"] += 1
            yield self.step

    def cool(self, length):
        self.cooled = length

    def objective(self, final):
        assert final == (self.cooled == 0)
        return self._objective(self.learning_rate, self.step)

    def state(self):
        return {"step": torch.tensor(self.step)}, {"step": self.step, "clock": dict(self.clock)}

    def restore(self, state):
        self.step, self.clock, self.cooled = state[1]["step"], dict(state[1]["clock"]), 0


RATES = (1.0, 0.1, 0.01, 0.001)


def search(objective, store=None, listener=events.ignore, made=None, **settings):
    options = Settings(**{"learning_rates": RATES, "steps": 100, **settings})
    made = [] if made is None else made
    return Search(options, lambda rate: Made(rate, objective, made), store or MemoryStore(), 60.0, listener)


def test_the_best_goes_on():
    values = {12 + 4: {1.0: 5, 0.1: 8, 0.01: 9, 0.001: 1}, 100: {0.01: 3}}
    found, seen = search(lambda rate, step: values[step][rate]), []
    found.listener = seen.append
    rate, (_, notes) = found.run()
    assert (rate, notes["step"]) == (0.01, 100)
    assert found.values == {12: values[16], 100: values[100]}
    estimates = [(e.learning_rate, e.step, e.per_example) for e in seen if isinstance(e, events.ObjectiveEstimated)]
    assert estimates[-1] == (0.01, 100, 1.5)  # divided by the method's scale
    steps = sum(isinstance(event, events.StepTaken) for event in seen)
    assert steps == planned_steps(found.settings) == notes["clock"]["steps"] + 3 * 16


def test_cooling_down_is_thrown_away():
    store = MemoryStore()
    search(lambda rate, step: -rate, store).run()
    kept = {rate: store.get(rate)[1] for rate in RATES}
    assert {rate: notes["step"] for rate, notes in kept.items()} == {1.0: 12, 0.1: 12, 0.01: 12, 0.001: 100}
    assert kept[1.0]["clock"]["steps"] == 16  # its cost is not


def test_a_search_that_is_started_again_repeats_its_decisions(tmp_path):
    class Kill(Exception):
        pass

    def objective(rate, step):
        return {0.1: 2.0, 0.01: 1.0}.get(rate, -math.inf) + step / 1000

    def kill(event):
        if isinstance(event, events.StepTaken) and (event.learning_rate, event.step) == (0.1, 60):
            raise Kill

    first = search(objective, FolderStore(tmp_path), kill)
    with pytest.raises(Kill), pytest.warns(UserWarning, match="diverged"):
        first.run()
    made, seen = [], []
    again = search(objective, FolderStore(tmp_path), seen.append, made)
    with pytest.warns(UserWarning, match="learning rate 1 diverged and is dropped"):
        rate, state = again.run()
    assert rate == 0.1
    assert int(state[0]["step"]) == 100
    assert made == [0.1]
    assert min(event.step for event in seen if isinstance(event, events.StepTaken)) == 13
    whole = search(objective)
    with pytest.warns(UserWarning, match="diverged"):
        whole.run()
    assert again.values == whole.values
    assert again.values[12][1.0] == -math.inf


def test_ctrl_c_keeps_the_state_between_two_steps():
    store = MemoryStore()

    def interrupt(event):
        if isinstance(event, events.StepTaken) and event.step == 7:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        search(lambda rate, step: 0.0, store, interrupt).run()
    assert store.get(1.0)[1]["step"] == 7
    assert store.get(0.1) is None


def test_nobody_is_left():
    with (
        pytest.warns(UserWarning, match="diverged"),
        pytest.raises(AllDivergedError, match=r"smaller ones than 1, 0\.1"),
    ):
        search(lambda rate, step: -math.inf, learning_rates=(1.0, 0.1)).run()


def test_one_process_writes_and_all_read(tmp_path):
    state = {"a": torch.arange(3)}, {"step": 4, "values": {"7": None}}
    FolderStore(tmp_path, writes=False).put(0.1, state)
    assert not list(tmp_path.iterdir())
    FolderStore(tmp_path).put(1e-5, state)
    tensors, notes = FolderStore(tmp_path, writes=False).get(1e-5)
    assert torch.equal(tensors["a"], state[0]["a"])
    assert notes == state[1]
    assert FolderStore(tmp_path).get(0.1) is None
