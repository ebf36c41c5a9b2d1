"""What a worker of any engine does with a run."""

import pytest

from deelbo.compare import Records
from deelbo.compare.engines import ENGINES, base
from deelbo.compare.engines.base import BUSY, DONE, FAILED, attempt
from shared.comparisons import journal, small_options, small_problems


@pytest.fixture
def trial(tmp_path):
    (problem,) = small_problems(tmp_path, small_options(methods=("elbo",)))
    return problem.trial()


@pytest.fixture
def runs(monkeypatch):
    """Runs that are over at once; their list."""
    made = []

    def run_trial(trial, records, device, listener):
        made.append((trial.key, device))
        return {"key": trial.key, "objective": 1.0}

    monkeypatch.setattr(base, "run_trial", run_trial)
    return made


def test_engines_by_name():
    assert ENGINES.names() == ["local", "ray"]


def test_a_run_is_made_once(tmp_path, trial, runs):
    folder = tmp_path / "records"
    for _ in range(2):
        outcome = attempt(trial, folder, "cpu")
        assert (outcome.key, outcome.status, outcome.message) == (trial.key, DONE, "")
    assert runs == [(trial.key, "cpu")]
    record = Records(folder).get(trial.key)
    assert record["objective"] == 1.0
    assert record["finished"].endswith("Z")
    ended, lines = journal(folder)
    assert [line["event"] for line in lines] == ["begun", "ended"]
    assert ended == {trial.key: 1}


def test_a_run_of_another_process_is_left_to_it(tmp_path, trial, runs):
    with Records(tmp_path / "records").claim(trial.key):
        assert attempt(trial, tmp_path / "records", None).status == BUSY
    assert runs == []


def test_a_failure_is_told_in_one_line(tmp_path, trial, monkeypatch, capsys):
    def fail(*arguments):
        raise RuntimeError("out of memory\n\n  tried 3 GB\n  of 2 GB\n  and more")

    monkeypatch.setattr(base, "run_trial", fail)
    outcome = attempt(trial, tmp_path / "records", None)
    assert (outcome.status, outcome.message) == (FAILED, "RuntimeError: out of memory; tried 3 GB; of 2 GB")
    assert "Traceback" in capsys.readouterr().err  # for the log of the workers
    assert Records(tmp_path / "records").get(trial.key) is None
    with Records(tmp_path / "records").claim(trial.key) as mine:
        assert mine
