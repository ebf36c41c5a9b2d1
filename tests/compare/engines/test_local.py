"""Processes on this machine give the same records, and survive the loss of workers."""

import json
import os
import threading

import pytest

from deelbo.compare import compare
from deelbo.compare.engines import LocalEngine
from deelbo.compare.engines.local import _environment, available_threads
from deelbo.errors import FailedRunsError
from deelbo.events import Note
from shared.comparisons import FEW, journal, kill_one, small_comparison, small_options, without_times
from shared.processes import spawn_workers

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_workers")]


def test_a_killed_worker_is_replaced(tmp_path, local):
    killed = []
    comparison = small_comparison(tmp_path, small_options(**FEW))
    thread = threading.Thread(target=kill_one, args=(tmp_path / "records", killed))
    thread.start()
    compare(comparison, LocalEngine(tmp_path / "records", 2, "cpu", tmp_path / "log"))
    thread.join()
    assert killed
    assert max(journal(tmp_path / "records")[0].values()) == 1
    assert without_times(tmp_path / "records") == without_times(local)


def test_a_run_that_fails_is_told_and_the_others_go_on(tmp_path, monkeypatch):
    spawn_workers(monkeypatch)  # one test with workers as a user has them
    comparison = small_comparison(tmp_path, small_options(methods=("elbo", "la-lml")))
    bad = comparison.wanted()[0]
    records = comparison.known.records
    records.work(bad.key).mkdir(parents=True)
    (records.work(bad.key) / "something").write_text("else")  # its folder is not its own
    notes = []
    with pytest.raises(FailedRunsError, match=r"1 runs failed.*holds something else"):
        compare(comparison, LocalEngine(tmp_path / "records", 1, "cpu", tmp_path / "log"), notes.append)
    assert [event for event in notes if isinstance(event, Note)]
    assert comparison.wanted() == [bad]


def test_a_run_whose_worker_always_dies_is_given_up(tmp_path):
    options = small_options(methods=("elbo",))
    comparison = small_comparison(tmp_path, options, models=["shared.comparisons:deadly"])
    with pytest.raises(FailedRunsError, match="died 2 times"):
        compare(comparison, LocalEngine(tmp_path / "records", 1, "cpu", tmp_path / "log", retries=1))


def test_two_processes_never_make_the_same_run(tmp_path, local):
    comparisons = [small_comparison(tmp_path, small_options(**FEW)) for _ in range(2)]
    errors = []

    def run(comparison):
        try:
            compare(comparison, LocalEngine(tmp_path / "records", 2, "cpu", tmp_path / "log"))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(comparison,)) for comparison in comparisons]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    ended, lines = journal(tmp_path / "records")
    assert max(ended.values()) == 1
    assert len([line for line in lines if line["event"] == "begun"]) == len(ended)
    assert len({line["process"] for line in lines}) > 2
    assert without_times(tmp_path / "records") == without_times(local)
    assert json.loads((tmp_path / "records" / f"{next(iter(ended))}.json").read_text())["key"] in ended


def test_threads_that_may_be_used(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 2, 5}, raising=False)
    for wanted, number in (("2", 2), ("8", 3), ("0", 3), ("many", 3), ("", 3)):
        monkeypatch.setenv("OMP_NUM_THREADS", wanted)
        assert available_threads() == number


def test_variables_are_set_for_a_moment(monkeypatch):
    monkeypatch.setenv("DEELBO_OLD", "before")
    monkeypatch.delenv("DEELBO_NEW", raising=False)
    with _environment(DEELBO_OLD="now", DEELBO_NEW="new"):
        assert (os.environ["DEELBO_OLD"], os.environ["DEELBO_NEW"]) == ("now", "new")
    assert os.environ["DEELBO_OLD"] == "before"
    assert "DEELBO_NEW" not in os.environ
