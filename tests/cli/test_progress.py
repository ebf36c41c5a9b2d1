"""What a person sees of events, in a log file and in a terminal."""

import types
import warnings

import pytest

from deelbo import events
from deelbo.cli import progress
from deelbo.cli.progress import ComparisonProgress, RunProgress

EVENTS = (
    events.Note("6 images, task='classification'"),
    events.TrainingPlanned("small on 6 images", steps=40, batch_size=3),
    events.StepTaken(0.1, 1),
    events.ObjectiveAwaited(0.1, 20),
    events.ObjectiveEstimated(0.1, 20, -1.23456),
    events.SourceStepTaken(3, 9, 0.5, 2),
)


@pytest.fixture
def clock(monkeypatch):
    """Time that a test moves itself."""
    now = types.SimpleNamespace(seconds=1000.0)
    monkeypatch.setattr(progress.time, "monotonic", lambda: now.seconds)
    return now


def test_a_log_file_has_notes_and_objectives(capsys):
    with RunProgress(title="elbo: ") as shown:
        for event in EVENTS:
            shown(event)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [
        "elbo: 6 images, --task classification",
        "elbo: small on 6 images",
        "elbo: learning rate 0.1, step 20: objective per example -1.2346",
    ]


def test_a_log_file_has_a_line_now_and_then(capsys, clock):
    with RunProgress() as shown:
        shown(events.TrainingPlanned("", steps=40, batch_size=3))
        for step in range(1, 11):
            clock.seconds += 8
            shown(events.StepTaken(0.1, step))
        shown(events.Stage("reading", 5, 9))
        clock.seconds += 31
        shown(events.Stage("reading", 6, 9))
    lines = [line.strip() for line in capsys.readouterr().err.splitlines() if line.strip()]
    assert lines == [
        "learning rate 0.1: 4 of 40 0.4 examples/s",  # 4 steps of 3 examples in 32 seconds
        "learning rate 0.1: 8 of 40 0.4 examples/s",
        "reading: 6 of 9",
    ]


def test_what_was_done_before_is_not_shown_as_to_do(capsys, clock):
    with RunProgress() as shown:
        shown(events.TrainingPlanned("", steps=40, batch_size=3))
        clock.seconds += 31
        shown(events.StepTaken(0.1, 26))  # a run that is continued
    assert "1 of 15" in capsys.readouterr().err


def test_quiet_shows_nothing_but_warnings(capsys):
    before = warnings.showwarning
    with RunProgress(quiet=True) as shown, warnings.catch_warnings():
        warnings.simplefilter("always")
        for event in EVENTS:
            shown(event)
        warnings.showwarning("something is odd", UserWarning, "file", 1)
    assert capsys.readouterr().err == "note: something is odd\n"
    assert warnings.showwarning is before


def test_one_of_several_processes_speaks(capsys, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    with RunProgress() as shown:
        shown(EVENTS[0])
    assert capsys.readouterr().err == ""


def test_bars_in_a_terminal(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    with RunProgress() as shown:
        for event in EVENTS:
            shown(event)
        shown(events.Stage("reading", 9, 9))
        bars = {task.description: task for task in shown.bars.tasks}
    training = bars["source task, loss 0.500, 2 snapshots"]
    assert (training.completed, training.total, training.visible) == (3, 9, True)
    assert not bars["reading"].visible  # what is done goes


class Counted:
    """As much of a comparison as a log file shows."""

    def __init__(self):
        self.done = 0

    def counts(self):
        return self.done, 9


def test_a_comparison_in_a_log_file(capsys, clock):
    comparison = Counted()
    with ComparisonProgress() as shown:
        shown(events.Note("going on"))
        shown(events.ComparisonState(comparison, [], None))
        shown(events.StepTaken(0.1, 1))
        comparison.done = 1
        shown(events.ComparisonState(comparison, [], 100.0))  # too early for another line
        clock.seconds += 11
        shown(events.ComparisonState(comparison, [], 90.0))
        clock.seconds += 11
        shown(events.ComparisonState(comparison, [], 80.0))  # nothing new
    assert capsys.readouterr().err.splitlines() == ["going on", "0 of 9 runs", "1 of 9 runs, about 1.5 min left"]


def test_a_comparison_in_a_terminal(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    row = ("small", "l2-sp", "18", "1", "elbo", "3 of 3", "91.2 %")
    monkeypatch.setattr(progress, "leaders", lambda comparison: [row])
    with ComparisonProgress() as shown:
        shown(events.ComparisonState(Counted(), [("map-grid, 0.1", 0.25), ("elbo", None)], 30.0))
        view = shown._view(events.ComparisonState(Counted(), [("map-grid, 0.1", 0.25), ("elbo", None)], 30.0), "title")
    shown.console.print(view)
    printed = capsys.readouterr().err
    for text in ("title", "map-grid, 0.1: 25%", "  elbo", "best so far", *row):
        assert text in printed
