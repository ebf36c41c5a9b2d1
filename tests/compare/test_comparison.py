"""The loop of a comparison, and the problems that it is made of."""

import types

import pytest

from deelbo.compare import Comparison, Records, compare
from deelbo.compare import comparison as module
from deelbo.compare.engines.base import BUSY, DONE, FAILED, Outcome
from deelbo.errors import FailedRunsError
from deelbo.events import ComparisonState, Note
from shared.comparisons import put_record, small_comparison, small_options, small_problems


@pytest.mark.filterwarnings("ignore")
def test_methods_take_turns(tmp_path):
    comparison = Comparison(
        small_problems(tmp_path, small_options(methods=("map-grid", "map-bo"))), Records(tmp_path / "r")
    )
    grid, optimisation = comparison.entries
    first, second, *_ = comparison.wanted()
    assert first == grid.plan().trials[0]
    assert [second] == optimisation.plan().trials
    assert comparison.counts() == (0, 9 + 3)


@pytest.mark.parametrize("name", ["seeds", "train_sizes", "priors", "models"])
def test_a_value_twice_is_refused(tmp_path, name):
    values = {
        "seeds": [1, 1],
        "train_sizes": [18, 18],
        "priors": ["l2-sp"] * 2,
        "models": ["shared.pictures:small"] * 2,
    }
    with pytest.raises(ValueError, match=f"{name}=.* has a value twice"):
        small_problems(tmp_path, **{name: values[name]})


def test_everything_is_the_same_as_its_number(tmp_path):
    (number,), (everything,) = small_problems(tmp_path, train_sizes=[30]), small_problems(tmp_path, train_sizes=[None])
    assert number.trial().key == everything.trial().key


class Instant:
    """An engine whose runs are over at once, with the outcomes that a test wants."""

    def __init__(self, records, status=lambda trial, times: DONE, slots=2):
        self.records, self.status, self.slots = records, status, slots
        self.running, self.begun, self.most, self.closed = [], [], 0, False

    def submit(self, trial):
        self.begun.append(trial.key)
        self.running.append(trial)
        self.most = max(self.most, len(self.running))

    def wait(self, seconds):
        outcomes = []
        for trial in self.running:
            status = self.status(trial, self.begun.count(trial.key))
            if status == DONE:
                put_record(self.records, trial, nll=trial.settings.learning_rates[0])
            outcomes.append(Outcome(trial.key, status, "because" if status == FAILED else ""))
        self.running = []
        return outcomes

    def progress(self):
        return {}

    def close(self):
        self.closed = True


@pytest.fixture
def small(tmp_path):
    return small_comparison(tmp_path, small_options(methods=("map-grid", "la-lml")))


def test_the_loop_goes_on_until_nothing_is_wanted(small):
    engine, seen = Instant(small.known.records), []
    compare(small, engine, seen.append)
    assert small.counts() == (11, 11)  # 8 cells and their final run, 2 learning rates
    assert len(engine.begun) == len(set(engine.begun)) == 11
    assert engine.most == 2
    assert engine.closed
    assert all(entry.finished() for entry in small.entries)
    assert isinstance(seen[-1], ComparisonState)
    assert seen[-1].seconds_left == 0.0
    compare(small, again := Instant(small.known.records))
    assert (again.begun, again.closed) == ([], True)


def test_runs_of_another_process_are_waited_for(small, monkeypatch):
    monkeypatch.setattr(module, "POLL", 0.0)
    busy = small.wanted()[0].key
    engine = Instant(small.known.records, lambda trial, times: BUSY if trial.key == busy and times < 3 else DONE)
    compare(small, engine)
    assert engine.begun.count(busy) == 3
    assert small.counts() == (11, 11)


def test_a_failed_run_is_not_tried_again_and_the_others_go_on(small):
    bad = next(trial for trial in small.wanted() if trial.settings.method == "la-lml").key
    engine, seen = Instant(small.known.records, lambda trial, times: FAILED if trial.key == bad else DONE, 1), []
    with pytest.raises(FailedRunsError, match="1 runs failed and are tried again by the next call: because"):
        compare(small, engine, seen.append)
    assert engine.begun.count(bad) == 1
    assert [trial.key for trial in small.wanted()] == [bad]
    assert next(event.text for event in seen if isinstance(event, Note)).startswith("failed: ")
    assert engine.closed


def test_three_failures_at_the_beginning_are_enough(small):
    engine = Instant(small.known.records, lambda trial, times: FAILED, 1)
    with pytest.raises(FailedRunsError, match="the first 3 runs failed: because"):
        compare(small, engine)
    assert len(engine.begun) == 3
    assert engine.closed


def test_the_time_left_is_the_mean_cost_of_what_is_missing(small):
    assert small.seconds_left({}, 1) is None
    grid, laplace = small.entries
    for trial in grid.plan().trials[:2]:
        put_record(small.known.records, trial, seconds=5.25)  # ten seconds in all
    put_record(small.known.records, laplace.plan().trials[0], seconds=15.25)  # twenty
    # Seven more of ten seconds and one of twenty, of which a half is done of a run of 40/3 seconds.
    assert small.seconds_left({"some": 0.5}, 2) == pytest.approx((70 + 20 - 20 / 3) / 2)


def test_plans_are_thought_over_only_when_a_missing_run_is_there(small):
    entry, calls = small.entries[1], []
    plan = entry.strategy.plan
    entry.strategy = types.SimpleNamespace(plan=lambda *arguments: calls.append(1) or plan(*arguments))
    for _ in range(3):
        assert not entry.finished()
    assert len(calls) == 1
    for trial in entry.plan().trials:
        put_record(small.known.records, trial)
    assert entry.finished()
    assert len(entry.records()) == 2
