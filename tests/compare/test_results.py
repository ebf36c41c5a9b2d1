"""Numbers as people read them."""

import math

from deelbo.compare.results import markdown, summary


def test_summaries_say_what_was_lost():
    assert summary([0.5], "{:.1f}".format) == "0.5"
    assert summary([0.2, 0.4, None, math.inf], "{:.1f}".format) == "0.3 (0.2–0.4), 2 diverged"
    assert summary([None], "{:.1f}".format) == "diverged"
    assert summary([], "{:.1f}".format) == ""


def row(method, seed, accuracy):
    metrics = {"balanced_accuracy": accuracy, "accuracy": accuracy, "nll": 1 - accuracy, "ece": 0.1}
    where = {"model": "m", "prior": "l2-sp", "label": method, "train_size": 10, "seed": seed}
    return {**where, "likelihood": "categorical", "runs": 1, **metrics}


def test_the_best_mean_is_marked_where_all_have_the_same_training_sets():
    rows = [row("a", 1, 0.6), row("a", 2, 0.8), row("b", 1, 0.5), row("b", 2, 0.5)]
    table = markdown(rows).split("###")[1]
    assert "**70.0" in table
    assert "**50.0" not in table
    assert "**" not in markdown(rows[:3]).split("###")[1]
