import errno
import os

import pytest
import torch

from deelbo._files import read_json, read_tensors, write_json, write_tensors


def test_round_trip(tmp_path):
    tensors = {"a": torch.randn(3, 2).T, "b": torch.tensor(2, dtype=torch.int64)}
    write_tensors(tmp_path / "x" / "s.safetensors", tensors, {"step": 3, "none": None})
    read, notes = read_tensors(tmp_path / "x" / "s.safetensors")
    assert all(torch.equal(read[name], tensors[name]) for name in tensors)
    assert notes == {"step": 3, "none": None}


def test_a_crash_while_writing_leaves_the_previous_file(tmp_path, monkeypatch):
    path = tmp_path / "s.safetensors"
    write_tensors(path, {"a": torch.ones(2)})

    def crash(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", crash)
    with pytest.raises(OSError, match=r"No space .*s\.safetensors"):
        write_tensors(path, {"a": torch.zeros(2)})
    assert read_tensors(path)[0]["a"].sum() == 2
    assert list(tmp_path.iterdir()) == [path]


def test_damaged_files_say_so(tmp_path):
    path = tmp_path / "s.safetensors"
    write_tensors(path, {"a": torch.ones(200)})
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(ValueError, match="is damaged"):
        read_tensors(path)
    write_json(tmp_path / "run.json", {"a": 1})
    assert read_json(tmp_path / "run.json") == {"a": 1}
    (tmp_path / "run.json").write_text('{"a": ')
    with pytest.raises(ValueError, match=r"run.json is damaged"):
        read_json(tmp_path / "run.json")


def test_files_have_ordinary_permissions(tmp_path):
    (tmp_path / "ordinary").touch()
    write_tensors(tmp_path / "a.safetensors", {"a": torch.ones(2)})
    assert (tmp_path / "a.safetensors").stat().st_mode == (tmp_path / "ordinary").stat().st_mode


def test_shared_memory_and_views_are_written_whole(tmp_path):
    base = torch.arange(6.0)
    write_tensors(tmp_path / "a.safetensors", {"a": base, "b": base, "c": base[2:4], "d": base.reshape(2, 3).T})
    found, _ = read_tensors(tmp_path / "a.safetensors")
    assert torch.equal(found["b"], base)
    assert torch.equal(found["c"], base[2:4])
    assert torch.equal(found["d"], base.reshape(2, 3).T)
