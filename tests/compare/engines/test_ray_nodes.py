"""A node of a Ray cluster is lost with its workers: no run is lost, and none is made twice."""

import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from deelbo.compare import compare
from deelbo.compare.engines import RayEngine
from shared.comparisons import FEW, journal, small_comparison, small_options, without_times
from shared.processes import Started, wait_until
from shared.rays import two_nodes

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="the workers of a node are found in /proc"),
]


def on_cluster(folder, address):
    """A comparison on a cluster, in a process of its own, because one process knows one cluster."""
    engine = RayEngine(folder / "records", address, device="cpu")
    assert engine.slots == 2
    compare(small_comparison(folder, small_options(**FEW)), engine)


def unfinished(records, workers):
    """Return the runs that these processes have begun and nobody has ended."""
    if not (records / "journal.jsonl").exists():
        return []
    ended, lines = journal(records)
    return [line["key"] for line in lines if line["process"] in workers and line["key"] not in ended]


def test_a_lost_node_loses_no_run(tmp_path, local):
    records = tmp_path / "records"
    small_comparison(tmp_path, small_options(**FEW))  # makes the data
    # Ray's sockets need short paths.
    with tempfile.TemporaryDirectory(prefix="ray") as place, two_nodes(Path(place) / "ray") as (address, second):
        process = Started(on_cluster, tmp_path, address, log=tmp_path / "log")
        assert wait_until(lambda: unfinished(records, second.processes()), process)
        workers = second.processes()
        second.kill()
        (lost,) = unfinished(records, workers)
        assert process.wait(240) == 0, process.log.read_text()

    ended, lines = journal(records)
    begun = Counter(line["key"] for line in lines if line["event"] == "begun")
    attempts = [(line["event"], line["process"] in workers) for line in lines if line["key"] == lost]
    assert attempts == [("begun", True), ("begun", False), ("ended", False)]
    assert set(begun) == set(ended) == {path.stem for path in records.glob("*.json")}
    assert set(ended.values()) == {1}
    assert {key for key, times in begun.items() if times > 1} == {lost}
    assert without_times(records) == without_times(local)
    assert not list(records.glob("work/*"))
