"""What processes that train together agree on, and who tells of errors."""

import os
import pickle

import pytest
import torch
import torch.distributed as dist
from torch.utils.data import TensorDataset

import deelbo
from deelbo import _processes
from deelbo.errors import AllDivergedError, LostProcessError
from shared import processes
from shared.digits import FAST, network

pytestmark = pytest.mark.slow


def together(rank, folder, function):
    """Call a function of the rank in a group of two, and keep what it returns."""
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="1")
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    torch.save(function(rank), f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def results(folder, function):
    processes.start_two(together, str(folder), function)
    return [torch.load(folder / f"{rank}.pt") for rank in (0, 1)]


def agree(rank):
    tensor = torch.full((2,), rank)
    _processes.copy_from_first([tensor])
    answers = [_processes.any_process(value) for value in (rank == 1, False)]
    return [*answers, _processes.from_first(lambda: f"from {rank}"), tensor.tolist()]


def test_all_take_what_the_first_says(tmp_path):
    assert results(tmp_path, agree) == [[True, False, "from 0", [0, 0]]] * 2


class Unreadable(ValueError):
    """An error that cannot be sent to another process."""

    def __reduce__(self):
        raise pickle.PicklingError


def caught(function):
    try:
        function()
    except Exception as error:
        return type(error).__name__, str(error), _processes.told_elsewhere(error)
    return None


def fail(failing, rank, kind):
    with _processes.shared_errors():
        if rank in failing:
            raise kind(f"in {rank}")


def refuse():
    raise FileExistsError("taken")


def errors(rank):
    everyone, second, odd = [
        caught(lambda failing=failing, kind=kind: fail(failing, rank, kind))
        for failing, kind in (((0, 1), ValueError), ((1,), OSError), ((1,), Unreadable))
    ]
    return everyone, second, odd, caught(lambda: _processes.from_first(refuse)), caught(lambda: fail((), rank, OSError))


def test_an_error_in_one_is_an_error_of_all_and_one_tells_of_it(tmp_path):
    first, second = results(tmp_path, errors)
    assert first == (
        ("ValueError", "in 0", False),
        ("OSError", "in 1", True),
        ("RuntimeError", "in 1", True),
        ("FileExistsError", "taken", False),
        None,
    )
    assert second == (
        ("ValueError", "in 0", True),
        ("OSError", "in 1", False),
        ("Unreadable", "in 1", False),
        ("FileExistsError", "taken", True),
        None,
    )


def test_what_all_come_to_is_told_by_the_first(monkeypatch):
    assert not _processes.told_elsewhere(AllDivergedError())
    monkeypatch.setenv("RANK", "1")
    assert _processes.told_elsewhere(AllDivergedError())
    assert not _processes.told_elsewhere(ValueError())


def lose(rank):
    found = []
    for text in ("Read error: Connection reset by peer. GLHF!", "out of memory"):
        try:
            with _processes.lost_processes("try again"):
                raise RuntimeError(text)
        except RuntimeError as error:
            found.append((isinstance(error, LostProcessError), str(error)))
    return found


def test_a_broken_connection_is_explained(tmp_path):
    lost = "one of the 2 processes has ended, so the others cannot go on; try again"
    assert results(tmp_path, lose) == [[(True, lost), (False, "out of memory")]] * 2
    with pytest.raises(RuntimeError, match=r"^Connection reset by peer$"), _processes.lost_processes("try again"):
        raise RuntimeError("Connection reset by peer")  # of a process that trains alone


def own_classifiers(rank):
    model = network()
    torch.manual_seed(rank)  # a classifier of its own in each process, as in a user's script without a seed
    model[4].reset_parameters()
    generator = torch.Generator().manual_seed(0)
    images, labels = torch.randn(20, 64, generator=generator), torch.arange(20) % 10
    settings = {**FAST, "steps": 5, "learning_rates": (0.1,), "head_start": "random", "dropout": False}
    result = deelbo.finetune(model, TensorDataset(images, labels), "4", **settings)
    return dict(result.model.state_dict()), result.objective, result.temperature


def test_processes_with_classifiers_of_their_own_train_the_same_network(tmp_path):
    (one, *rest), (other, *others) = results(tmp_path, own_classifiers)
    assert rest == others
    assert all(torch.equal(one[name], other[name]) for name in one)
