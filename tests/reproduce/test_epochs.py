"""A training that is measured after every epoch."""

from dataclasses import replace

import pytest
import torch

from deelbo.reproduce.epochs import both_modes, make_candidate, train_by_epochs
from deelbo.reproduce.kept_networks import Task, prepare
from deelbo.training.batches import fetch
from shared.reproductions import tiny_setup


@pytest.fixture
def make(tmp_path):
    setup = tiny_setup(tmp_path)
    settings = Task().settings(setup.scale, learning_rates=(0.1,), lr_search="grid", batch_norm="running", steps=9)

    def candidate(**changes):
        changed = replace(settings, **changes)
        return make_candidate(prepare(Task(), setup, changed), changed, "cpu")

    return candidate


class Stopped(Exception):
    pass


def test_a_stopped_training_continues_to_the_same_end(make, tmp_path):
    whole = make()
    rows = train_by_epochs(whole, tmp_path / "whole", both_modes)
    assert [row["step"] for row in rows] == [3, 6, 9]  # N = 18 in batches of 6
    assert [row["epoch"] for row in rows] == [1, 2, 3]

    def stops(candidate):
        if candidate.step > 3:
            raise Stopped
        return both_modes(candidate)

    with pytest.raises(Stopped):
        train_by_epochs(make(), tmp_path / "part", stops)
    again = make()
    assert train_by_epochs(again, tmp_path / "part", both_modes) == rows
    for name, value in again.network.state_dict().items():
        assert torch.equal(value, whole.network.state_dict()[name]), name
    assert train_by_epochs(make(), tmp_path / "part", stops) == rows  # a finished one is only read


def test_measuring_changes_nothing_but_modes_differ(make, tmp_path):
    measured, plain = make(), make()
    rows = train_by_epochs(measured, tmp_path / "a", both_modes)
    assert train_by_epochs(plain, tmp_path / "b") == [{name: row[name] for name in ("epoch", "step")} for row in rows]
    for name, value in measured.network.state_dict().items():
        assert torch.equal(value, plain.network.state_dict()[name]), name
    assert any(abs(row["objective_train"] - row["objective_eval"]) > 1e-3 for row in rows)


def test_the_objective_in_eval_mode_is_that_of_the_method(make, tmp_path):
    candidate = make()
    train_by_epochs(candidate, tmp_path / "a")
    row = both_modes(candidate)
    likelihood = row["objective_eval"] + candidate.method.learned()["kl"]
    with candidate.method.posterior.sample(seed=0), torch.no_grad():
        candidate.network.eval()
        images, labels = fetch(candidate.plain_set, range(18), torch.device("cpu"))
        logits = torch.cat([candidate.network(image[None]) for image in images])
        slow = float(torch.log_softmax(logits, 1)[range(18), labels].sum())
    assert likelihood == pytest.approx(slow / 18, abs=1e-5)
