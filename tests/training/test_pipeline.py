"""Batches of training steps, read by this process or by workers."""

import multiprocessing
import os
import random
import signal
import time

import accelerate
import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from deelbo import Settings
from deelbo.data import load_data
from deelbo.data.images import ImageFormat, ImageSet, ImageStore
from deelbo.events import Note, StepTaken
from deelbo.training import pipeline
from deelbo.training.pipeline import StepBatches, _begin_worker, default_workers
from shared.clocks import Ticking, Timed
from shared.digits import digits, quick
from shared.pictures import image_folder
from shared.processes import Started, wait_until

FORM = ImageFormat(28, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
STEPS = (0, 1, 2, 3, 1, 2, 7)  # a candidate goes back, or continues


class Noisy(Dataset):
    """Examples with noise from three libraries, which are read slowly if wanted."""

    def __init__(self, seconds=0.0):
        self.data, self.seconds = digits()[0], seconds

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        time.sleep(self.seconds)
        x, y = self.data[index]
        return x + torch.rand(64) + random.random() + float(np.random.rand()), y  # noqa: NPY002 - what datasets use


def batches(dataset, workers, **options):
    accelerator = accelerate.Accelerator(cpu=True)
    return StepBatches(dataset, Settings(batch_size=8, seed=5), accelerator, workers, **options)


def taken(dataset, workers):
    """Return inputs, labels, and the first random numbers after each step: those of dropout."""
    found, source = [], batches(dataset, workers)
    for step in STEPS:
        x, y = source.take(step)
        others = torch.tensor([random.random(), np.random.rand()])  # noqa: NPY002
        found.append((x, y, torch.rand(3), others))
    source.close()
    return found


def assert_same(one, other):
    for first, second in zip(one, other, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_workers_read_the_same_batches():
    alone = taken(Noisy(), 0)
    assert_same(alone[1], alone[4])  # the same step
    assert not torch.equal(alone[0][0], alone[1][0])
    assert_same(alone, taken(Noisy(), 1))
    assert_same(alone, taken(Noisy(), 2))


@pytest.mark.parametrize("memory", [0, 10**9])
def test_workers_read_the_same_images(tmp_path, memory):
    """Also where the images do not fit into memory, and threads of this process decode them ahead."""
    examples = load_data(str(image_folder(tmp_path / "data"))).train
    found = []
    for workers in (0, 2):
        store = ImageStore(examples, FORM, memory=memory)
        store.prepare(range(len(examples)))  # a worker that waited for these threads would never end
        found.append(taken(ImageSet(store, FORM, augment=True), workers))
    assert_same(*found)


def test_a_process_reads_its_part_of_a_batch():
    class Second:
        process_index, num_processes, device = 1, 2, torch.device("cpu")

    whole, half = batches(digits()[0], 0), StepBatches(digits()[0], Settings(batch_size=8, seed=5), Second(), 2)
    assert torch.equal(whole.take(3)[1][1::2], half.take(3)[1])
    half.close()


def test_slow_data_get_workers(monkeypatch):
    monkeypatch.setattr(pipeline, "default_workers", lambda: 2)
    slow, notes = Timed(digits()[0]), []
    source = batches(slow, None, listener=notes.append, clock=slow.clock)  # all of the time is spent on data
    alone = batches(digits()[0], 0)
    for step in range(8):
        assert torch.equal(source.take(step)[0], alone.take(step)[0])
        assert source.workers == (0 if step < 5 else 2)
    source.close()
    assert notes == [Note("100% of a step waits for data: 2 worker processes will read them")]


def test_fast_data_get_none(monkeypatch):
    """Of a step of 20 ticks, 2 are spent in reading it."""
    monkeypatch.setattr(pipeline, "default_workers", lambda: 2)
    clock, notes = Ticking(), []
    source = batches(digits()[0], None, listener=notes.append, clock=clock)
    for step in range(8):
        source.take(step)
        for _ in range(18):
            clock()
    assert (source.workers, notes) == (0, [])


def test_a_worker_says_what_went_wrong():
    class Broken(Noisy):
        def __getitem__(self, index):
            raise ValueError(f"{index}.jpg cannot be read as an image: truncated")

    for workers in (0, 1):
        source = batches(Broken(), workers)
        with pytest.raises(ValueError, match=r"^\d+\.jpg cannot be read as an image: truncated$"):
            source.take(0)
        source.close()


def test_where_workers_may_be_started(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(6), raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert default_workers() == 5
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert default_workers() == 2
    monkeypatch.setattr("sys.platform", "darwin")
    assert default_workers() == 0


def test_a_run_does_not_depend_on_its_workers(tmp_path):
    def stop(event):
        if isinstance(event, StepTaken) and event.step == 7:
            raise KeyboardInterrupt

    options, before = {"steps": 30, "learning_rates": (0.1, 0.01)}, children(os.getpid())  # of earlier tests
    with pytest.raises(KeyboardInterrupt):
        quick(out=tmp_path / "run", listener=stop, workers=2, checkpoint_seconds=0.0, **options)
    assert set(children(os.getpid())) <= set(before)
    found = quick(out=tmp_path / "run", workers=1, **options)
    assert set(children(os.getpid())) <= set(before)
    alone = quick(workers=0, **options)
    assert (found.speed["workers"], alone.speed["workers"]) == (1, 0)
    assert (found.history, found.objective) == (alone.history, alone.objective)


def children(parent):
    """Return the workers that a process has forked; helpers of multiprocessing itself are not among them."""
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                state, its_parent = file.read().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(its_parent) == parent and state != "Z":
            found.append(int(name))
    return found


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def train_slowly():
    import deelbo
    from shared.digits import FAST, network

    deelbo.finetune(network(), Noisy(0.01), "4", **{**FAST, "steps": 1000, "workers": 2})


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_worker_outlives_its_run(number):
    process = Started(train_slowly)
    assert wait_until(lambda: len(children(process.process.pid)) == 2, process)
    workers = children(process.process.pid)
    if number == signal.SIGINT:  # as a terminal sends it, to all
        for pid in workers:
            os.kill(pid, number)
    assert process.kill(number) != 0
    end = time.monotonic() + 60
    while any(map(alive, workers)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(alive, workers))


def begin_late():
    while os.getppid() == multiprocessing.parent_process().pid:
        time.sleep(0.01)
    _begin_worker(0)
    time.sleep(120)


def start_late():
    multiprocessing.get_context("fork").Process(target=begin_late).start()
    time.sleep(120)


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
def test_a_worker_that_begins_after_its_run_was_killed_ends_too():
    process = Started(start_late)
    assert wait_until(lambda: len(children(process.process.pid)) == 1, process)
    workers = children(process.process.pid)
    assert process.kill(signal.SIGKILL) != 0
    end = time.monotonic() + 30
    while any(map(alive, workers)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(alive, workers))
