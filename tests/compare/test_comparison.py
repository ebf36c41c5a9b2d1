"""The loop of a comparison, and the problems that it is made of."""

import pytest

from deelbo.compare import Comparison, Records
from shared.comparisons import small_options, small_problems


@pytest.mark.filterwarnings("ignore")
def test_methods_take_turns(tmp_path):
    comparison = Comparison(
        small_problems(tmp_path, small_options(methods=("map-grid", "map-bo"))), Records(tmp_path / "r")
    )
    grid, optimisation = comparison.entries
    first, second, *_ = comparison.wanted()
    assert first == grid.plan().trials[0]
    assert [second] == optimisation.plan().trials
    assert comparison.counts() == (0, 9 + 3)


@pytest.mark.parametrize("name", ["seeds", "train_sizes", "priors", "models"])
def test_a_value_twice_is_refused(tmp_path, name):
    values = {
        "seeds": [1, 1],
        "train_sizes": [18, 18],
        "priors": ["l2-sp"] * 2,
        "models": ["shared.pictures:small"] * 2,
    }
    with pytest.raises(ValueError, match=f"{name} has a value twice"):
        small_problems(tmp_path, **{name: values[name]})


def test_everything_is_the_same_as_its_number(tmp_path):
    (number,), (everything,) = small_problems(tmp_path, train_sizes=[30]), small_problems(tmp_path, train_sizes=[None])
    assert number.trial().key == everything.trial().key
