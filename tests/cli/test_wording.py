"""Messages of the library in the words of the command line."""

import pytest

from deelbo.cli.wording import as_options

NAMES = {"train_size", "task", "skip_bad", "data_dir", "rank", "pairs"}


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("train_size=500 is more than 18", "--train-size 500 is more than 18"),
        ("task='regression', but it is one of", "--task regression, but it is one of"),
        ('data_dir="/a b/c": no such folder', "--data-dir /a b/c: no such folder"),
        ("leave them out by skip_bad=True", "leave them out by --skip-bad"),
        ("pairs=False trains all weights", "--no-pairs trains all weights"),
        ("rank=9, but (rank=4)", "--rank 9, but (--rank 4)"),
        ("train_size=-1; rank=2:", "--train-size -1; --rank 2:"),
        ("load(path, model=net)", "load(path, model=net)"),
        ("my_rank=3 and rank = 3", "my_rank=3 and rank = 3"),
        ("nothing to say", "nothing to say"),
    ],
)
def test_arguments_become_options(message, expected):
    assert as_options(message, NAMES) == expected


def test_other_arguments_stay():
    assert as_options("train_size=500", set()) == "train_size=500"
