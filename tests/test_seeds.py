import random

import numpy as np
import pytest
import torch

from deelbo._seeds import GOLDEN, mix, own_randomness, random_state, seed_step, set_random_state


def test_randomness_is_a_function_of_the_step_and_goes_back():
    torch.manual_seed(3)
    random.seed(3)
    expected = torch.rand(2), random.random()
    torch.manual_seed(3)
    random.seed(3)
    with own_randomness(torch.device("cpu")):
        seed_step(0, 5)
        first = torch.rand(2), random.random()
        seed_step(0, 5)
        assert torch.equal(first[0], torch.rand(2))
        assert first[1] == random.random()
    assert torch.equal(expected[0], torch.rand(2))
    assert expected[1] == random.random()


def test_the_state_of_all_generators_is_taken_and_set():
    def drawn():
        return torch.rand(1).item(), random.random(), np.random.rand()  # noqa: NPY002 - what datasets use

    with own_randomness(torch.device("cpu")):
        state = random_state()
        first, second = drawn(), drawn()
        assert all(one != other for one, other in zip(first, second, strict=True))
        set_random_state(state)
        assert drawn() == first


def test_seeds_of_draws_and_chunks_do_not_collide():
    assert len({mix(seed, draw) for seed in range(100) for draw in range(100)}) == 10_000


def test_one_number_is_splitmix64s_first_output():
    """The reference values are those of its author's C code for the seed 1234567, as in Rosetta Code."""
    first, second = 6457827717110365317, 3203168211198807973
    assert mix(1234567) == first
    assert mix(1234567 + GOLDEN) == second
    assert 0 <= mix(2**64 - 1, 5) < 2**63
    assert mix(1, 2) != mix(2, 1)


def test_numpy_is_seeded_and_given_back_even_after_an_error():
    def draw(step):
        seed_step(1, step)
        return np.random.rand(2)  # noqa: NPY002

    def fail():
        with own_randomness(torch.device("cpu")):
            assert (draw(2) == draw(2)).all()
            assert (draw(2) != draw(3)).all()
            raise ZeroDivisionError

    np.random.seed(4)  # noqa: NPY002
    expected = np.random.rand(2)  # noqa: NPY002
    np.random.seed(4)  # noqa: NPY002
    with pytest.raises(ZeroDivisionError):
        fail()
    assert (np.random.rand(2) == expected).all()  # noqa: NPY002
