"""DE-ELBO and ELBO in the training loop."""

import pytest

from deelbo.training.loop import _View
from shared.candidates import candidate
from shared.digits import digits, quick


def test_de_elbo_learns_and_elbo_collapses():
    _, test_set = digits()
    accuracies = {}
    for method in ("de-elbo", "elbo"):
        result = quick(method=method, prior="l2-zero", steps=200, lr_search="grid")
        accuracies[method] = result.evaluate(test_set)["accuracy"]
    assert accuracies["de-elbo"] > 0.75
    assert accuracies["elbo"] < 0.4
    assert result.scale > 0
    assert set(result.prior_variances) == {"backbone", "head"}


def test_an_early_look_is_the_objective_at_the_best_scale():
    """With a tiny scale, the first moves of the means cost more than they gain, and a large rate looks worst."""
    fast, slow = candidate(steps=200, rate=0.1, init_scale=1e-4), candidate(steps=200, rate=0.0001, init_scale=1e-4)
    for running in (fast, slow):
        for _ in running.advance(8):
            pass
    raw = [running.method.objective(_View(running, list(range(96))), 3) for running in (fast, slow)]
    assert raw[0] < raw[1]
    early = [running.objective(final=False) for running in (fast, slow)]
    assert early[0] > early[1]
    assert early[0] > raw[0]
    best = fast.method.posterior.scale.item() / 4
    values = []
    for factor in (1 / 16, 1, 16):
        fast.method.posterior.set_scale(best * factor)
        assert fast.method.posterior.scale.item() == pytest.approx(best * factor, rel=1e-5)
        values.append(fast.method.objective(_View(fast, list(range(96))), 3))
    assert max(values) == values[1]
