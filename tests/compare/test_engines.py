"""Engines give the same records, and survive the loss of workers."""

import json
import os
import signal
import sys
import threading
import time

import pytest
import ray

from deelbo.compare import compare
from deelbo.compare.engines import LocalEngine, RayEngine
from deelbo.errors import FailedRunsError
from deelbo.events import Note
from shared.comparisons import journal, small_comparison, small_options, without_times
from shared.processes import spawn_workers

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_workers")]

FEW = {"methods": ("de-elbo", "map-grid"), "settings": {"steps": 60, "batch_size": 6, "samples": 2}}


@pytest.fixture(scope="module")
def local(tmp_path_factory, forked_workers):
    """A comparison that nobody disturbed; with two workers each has one thread, as in the others, for the same bits."""
    folder = tmp_path_factory.mktemp("local")
    comparison = small_comparison(folder, small_options(**FEW))
    compare(comparison, LocalEngine(folder / "records", 2, "cpu", folder / "log"))
    assert comparison.counts() == (10, 10)
    return folder / "records"


def kill_one(records, seen):
    """Kill a worker in the middle of its second run."""
    for _ in range(2000):
        time.sleep(0.05)
        if (records / "journal.jsonl").exists():
            ended, lines = journal(records)
            begun = [line for line in lines if line["event"] == "begun"]
            if len(begun) >= 2 and begun[-1]["key"] not in ended:
                seen.append(begun[-1]["process"])
                os.kill(begun[-1]["process"], signal.SIGKILL)
                return


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


@pytest.fixture(scope="module")
def cluster():
    # Ray's workers are very nice, and would wait for the other tests.
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112
    paths = os.pathsep.join(path for path in sys.path if path)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error",
             runtime_env={"env_vars": {"PYTHONPATH": paths}})  # fmt: skip
    yield ray
    ray.shutdown()


def test_ray_with_a_killed_worker_gives_the_same_records(tmp_path, local, cluster):
    killed = []
    comparison = small_comparison(tmp_path, small_options(**FEW))
    thread = threading.Thread(target=kill_one, args=(tmp_path / "records", killed))
    thread.start()
    engine = RayEngine(tmp_path / "records", device="cpu")
    assert engine.slots == 2
    compare(comparison, engine)
    thread.join()
    assert killed
    assert max(journal(tmp_path / "records")[0].values()) == 1
    assert without_times(tmp_path / "records") == without_times(local)


def test_ray_refuses_what_the_cluster_has_not(tmp_path, cluster):
    with pytest.raises(ValueError, match="no node of the cluster has 99 CPUs"):
        RayEngine(tmp_path, cpus=99)


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
