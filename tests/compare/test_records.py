import json
import signal
import time

import pytest

from deelbo.compare import Records
from shared.processes import Started, wait_until


def test_a_record_is_kept_and_its_checkpoints_go(tmp_path):
    records = Records(tmp_path)
    assert records.get("a") is None
    records.work("a").mkdir(parents=True)
    (records.work("a") / "file").write_text("x")
    records.put("a", {"key": "a", "test": 1})
    assert records.get("a") == {"key": "a", "test": 1}
    assert not records.work("a").exists()


def test_checkpoints_of_finished_runs_are_tidied_away(tmp_path):
    records = Records(tmp_path)
    for key in "abc":
        records.work(key).mkdir(parents=True)
    with records.claim("a"), records.claim("b"):
        (tmp_path / "a.json").touch()
    (tmp_path / "c.json").touch()  # somebody else's: nobody ever claimed it
    records.tidy()
    assert not records.work("a").exists()
    assert records.work("b").exists()
    assert records.work("c").exists()


def test_a_damaged_record_is_named(tmp_path):
    (tmp_path / "a.json").write_text('{"key": "a"')
    with pytest.raises(ValueError, match=r"a\.json is damaged"):
        Records(tmp_path).get("a")
    (tmp_path / "b.json").write_text(json.dumps({"key": "other"}))
    with pytest.raises(ValueError, match=r"b\.json is no record"):
        Records(tmp_path).get("b")


def hold(folder):
    with Records(folder).claim("a") as mine:
        print(mine, flush=True)
        time.sleep(60)


@pytest.mark.slow
def test_one_process_has_a_claim_until_it_dies(tmp_path):
    process = Started(hold, tmp_path, out=tmp_path / "out")
    assert wait_until(lambda: process.out.read_text() == "True\n", process)
    with Records(tmp_path).claim("a") as mine, Records(tmp_path).claim("b") as other:
        assert (mine, other) == (False, True)
    assert process.kill() == -signal.SIGKILL
    with Records(tmp_path).claim("a") as mine:
        assert mine
