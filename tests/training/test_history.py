"""Sums over an epoch that are read when they are asked for, and rows made of them."""

import math

import pytest
import torch

from deelbo.training.history import History, speed_of


def sums(loss, nll, score, examples):
    return torch.tensor([loss, nll, score, examples], dtype=torch.float32)


def test_means_are_over_examples_and_begin_a_new_epoch():
    history = History()
    history.add(sums(6.0, 3.0, 2.0, 3.0), "accuracy")
    history.add(sums(2.0, 1.0, 1.0, 1.0), "accuracy")
    assert history.means() == pytest.approx({"data_loss": 2.0, "nll": 1.0, "accuracy": 0.75})
    history.add(sums(5.0, 5.0, 0.0, 1.0), "accuracy")
    assert history.means() == pytest.approx({"data_loss": 5.0, "nll": 5.0, "accuracy": 0.0})


def test_a_diverged_epoch_does_not_end():
    history = History()
    history.add(sums(math.nan, 1.0, 0.0, 1.0), "accuracy")
    assert history.diverged
    history.means()
    assert history.diverged


def test_it_continues_from_its_notes_in_the_middle_of_an_epoch():
    whole, first, second = History(), History(), History()
    for part in (whole, first):
        part.rows.append({"step": 1})
        part.add(sums(6.0, 3.0, 2.0, 3.0), "accuracy")
    second.restore(first.notes())
    first.add(sums(9.0, 9.0, 9.0, 9.0), "accuracy")  # does not change what was restored
    first.rows[0]["step"] = 2
    for part in (whole, second):
        part.add(sums(2.0, 1.0, 1.0, 1.0), "accuracy")
    assert whole.rows == second.rows
    assert whole.means() == second.means()


def test_clocks_are_summed_up():
    clock = {"data": 1.0, "network": 6.0, "steps": 8.0, "objective": 2.0, "number": 10.0, "examples": 40.0}
    assert speed_of([clock, clock], before=3.0) == {
        "examples_per_second": 5.0,
        "outside_network": 0.25,
        "data": 0.125,
        "seconds": 19.0,
        "seconds_objective": 4.0,
    }
