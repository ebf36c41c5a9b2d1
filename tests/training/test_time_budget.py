"""Time as the budget: the arithmetic."""

from dataclasses import replace

import pytest

from deelbo import Settings
from deelbo.training.time_budget import (
    LEAST_STEPS,
    REPORT_SECONDS,
    RESERVE,
    Costs,
    Plan,
    Work,
    fit,
    parse_time,
    shown_time,
)

COSTS = Costs(step=0.5, forward=0.002, objective=0.003, draw=0.1)


def work(num_data=400, batch_norm="", **options):
    own = {name: options.pop(name) for name in ("test_examples", "folds", "reported") if name in options}
    return Work(Settings(**options), num_data, batch_norm, **own)


def seconds_with(steps, planned, costs=COSTS):
    return replace(planned, settings=replace(planned.settings, steps=steps)).seconds_after_start(costs)


@pytest.mark.parametrize(
    ("text", "seconds", "shown"),
    [
        ("90s", 90, "1m30s"),
        ("10m", 600, "10m"),
        ("1h30m", 5400, "1h30m"),
        ("2h", 7200, "2h"),
        ("1h5s", 3605, "1h5s"),
        ("1.5h", 5400, "1h30m"),
        ("0.5m", 30, "30s"),
    ],
)
def test_times_are_read_and_shown(text, seconds, shown):
    assert parse_time(text) == seconds
    assert shown_time(seconds) == shown
    assert parse_time(shown) == seconds


@pytest.mark.parametrize("text", ["10", "", "m", "10 m", "30m1h", "-5m", "0s", "1d", "ten", 10, 10.0, None])
def test_other_times_are_refused(text):
    with pytest.raises(ValueError, match="write hours, minutes or seconds with their unit, such as 90s"):
        parse_time(text)


def test_what_a_race_takes():
    """Three rates, 200 steps: 20 and 6 of cooling for each, and the other 180 of the best."""
    found = work(steps=200, samples=10, test_examples=1000, reported=True)
    assert found.seconds_of_start(COSTS) == pytest.approx(400 * 0.002)
    assert found.seconds_of_steps(COSTS) == (3 * 26 + 180) * 0.5
    early, final = 3 * 3 * (400 * 0.003 + 0.1), 10 * (400 * 0.003 + 0.1)
    assert found.seconds_of_objectives(COSTS) == pytest.approx(early + final)
    assert found.seconds_of_rest(COSTS) == pytest.approx((400 + 1000) * 0.002 + REPORT_SECONDS)
    total = found.seconds_of_steps(COSTS) + found.seconds_of_objectives(COSTS) + found.seconds_of_rest(COSTS)
    assert found.seconds_after_start(COSTS) == total


def test_what_a_grid_and_batch_normalisation_take():
    found = work(steps=50, lr_search="grid", samples=2, batch_norm="batch", learning_rates=(0.1, 0.01))
    assert found.seconds_of_start(COSTS) == pytest.approx(3 * 400 * 0.002)
    assert found.seconds_of_steps(COSTS) == 2 * 50 * 0.5
    draw = 400 * 0.003 + 0.1 + 400 * 0.002
    assert found.seconds_of_objectives(COSTS) == pytest.approx(2 * (2 * draw + 400 * 0.002))


def test_what_the_end_of_an_epoch_and_folds_take():
    found = work(method="la-lml", steps=30, batch_size=100, learning_rates=(0.1,))
    costs = replace(COSTS, epoch=0.01, draw=0.0)
    assert found.seconds_of_steps(costs) == pytest.approx(30 * 0.5 + 7 * 400 * 0.01)  # 7 full epochs of 4 steps
    assert found.seconds_of_objectives(costs) == pytest.approx(400 * 0.003)  # a point estimate has no draws
    alone, folded = work(steps=100), work(steps=100, folds=5)
    fold = work(num_data=320, steps=100, learning_rates=(0.1,))
    five = 5 * (fold.seconds_of_start(COSTS) + fold.seconds_after_start(COSTS) + 2 * 400 * COSTS.forward)
    assert folded.seconds_after_start(COSTS) == pytest.approx(alone.seconds_after_start(COSTS) + five)


@pytest.mark.parametrize("options", [{}, {"lr_search": "grid"}, {"learning_rates": (0.1,)}, {"folds": 5}])
def test_as_many_steps_as_fit(options):
    planned = work(steps=6000, test_examples=100, **options)
    plan = fit("20m", 30.0, planned, COSTS)
    left = (1 - RESERVE) * 1200 - 30
    assert seconds_with(plan.steps, planned) <= left < seconds_with(plan.steps + 1, planned)
    assert plan == Plan("20m", plan.steps, 0.5, 30 + seconds_with(plan.steps, planned))
    assert plan.seconds_left(10) == plan.seconds - 5
    assert plan.seconds_left(1e9) == 0


def test_never_more_steps_than_without_a_time():
    assert fit("100h", 0.0, work(steps=600), COSTS).steps == 600
    assert fit("100h", 0.0, work(steps=7), COSTS).steps == 7


def test_the_final_objective_does_not_eat_the_time():
    """Ten draws of 50,000 examples would take 25 minutes: a tenth of ten minutes is enough for 2,000 examples."""
    large = work(num_data=50_000, steps=6000, samples=10)
    plan = fit("10m", 0.0, large, COSTS)
    assert plan.objective_examples == int(0.1 * 588 / (10 * 0.003))
    limited = replace(large, objective_examples=plan.objective_examples)
    assert seconds_with(plan.steps, limited) <= 588 < seconds_with(plan.steps + 1, limited)
    slow = replace(COSTS, objective=0.1, step=0.1)
    assert fit("10m", 0.0, replace(large, num_data=300), slow).objective_examples == 100  # not fewer
    assert fit("10h", 0.0, large, COSTS).objective_examples is None


def test_a_time_that_is_too_short_names_one_that_is_not():
    planned = work(steps=6000)
    with pytest.raises(
        ValueError, match=r"time='20s' is too short: 12 s have passed .* need time=(\w+) in all"
    ) as error:
        fit("20s", 12.0, planned, COSTS)
    needed = str(error.value).rpartition("time=")[2].split()[0]
    assert fit(needed, 12.0, planned, COSTS).steps >= LEAST_STEPS
