"""`reproduce`: nothing is made twice, whatever kills it."""

import json
import signal
import time

import pytest

from deelbo.reproduce import ENTRIES, made_with, reproduce
from deelbo.reproduce.study import Study
from shared import processes
from shared.comparisons import journal, without_times
from shared.reproductions import fill, make_tiny, tiny_setup


def test_networks_that_are_looked_into_are_not_said_to_have_a_mixed_precision(tmp_path):
    setup = tiny_setup(tmp_path, precision={"image": "bf16"})
    assert made_with(ENTRIES["tab-2"], setup)["precision"] == {"image": "bf16"}
    assert made_with(ENTRIES["fig-1a"], setup)["precision"] == {}


def test_unknown_names(tmp_path):
    with pytest.raises(ValueError, match="fig-9"):
        reproduce("fig-9", tiny_setup(tmp_path))


def test_an_entry_that_is_there_is_not_made_again(tmp_path):
    said = []
    setup = tiny_setup(tmp_path, announce=said.append)
    fill(setup, Study("ResNet-50", "cifar10", largest=True, training_sets=1))
    files = reproduce("tab-2", setup)
    written = [file.stat().st_mtime_ns for file in files]
    assert reproduce("tab-2", setup) == files
    assert [file.stat().st_mtime_ns for file in files] == written
    assert said[-1].startswith("tab-2 was made before: delete")
    assert reproduce("tab-2", tiny_setup(tmp_path, precision={"text": "bf16"})) == files  # it has no texts
    for changed in ({"scale": {"seeds": (7,)}}, {"precision": {"image": "bf16"}}):
        with pytest.raises(FileExistsError, match="other data or settings"):
            reproduce("tab-2", tiny_setup(tmp_path, **changed))


@pytest.mark.slow
def test_killed_at_any_moment_it_repeats_no_run(tmp_path):
    """Killed in the middle of two runs, then to the end: every run has one record, and was made once."""
    processes._server()
    tiny_setup(tmp_path)  # the data
    records = tmp_path / "out" / "records"
    for ended_before in (0, 3):

        def reached(number=ended_before):
            return (records / "journal.jsonl").exists() and len(journal(records)[0]) > number

        process = processes.Started(_make, str(tmp_path), log=tmp_path / "log")
        assert processes.wait_until(reached, process), (tmp_path / "log").read_text()
        time.sleep(0.05)
        assert process.kill() == -signal.SIGKILL
        assert not (tmp_path / "out" / "tab-2.json").exists()
    assert processes.Started(_make, str(tmp_path), log=tmp_path / "log").wait() == 0, (tmp_path / "log").read_text()
    ended, lines = journal(records)
    setup = tiny_setup(tmp_path)
    planned = {run.key for run in ENTRIES["tab-2"].trials(setup.scale) if not run.prior.startswith("PTYL")}
    assert len(planned) - 1 <= len(ended) <= len(planned)  # the two final runs may be the same
    assert set(ended.values()) == {1}
    for i, line in enumerate(lines):  # what had ended was never begun again
        assert line["event"] == "ended" or line["key"] not in {x["key"] for x in lines[:i] if x["event"] == "ended"}
    assert len(without_times(records)) == len(ended)
    assert not list((records / "work").iterdir())
    found = json.loads((tmp_path / "out" / "tab-2.json").read_text())
    assert set(found["seconds"]["L2-SP"]) == {"map-grid", "la-lml", "de-elbo"}


def _make(folder):
    with pytest.MonkeyPatch.context() as patch:
        processes.fork_workers(patch)
        return make_tiny(folder, "tab-2")
