"""Networks that are kept: trained once, with the objective that the search chose by."""

import pytest
import torch

from deelbo.events import ObjectiveEstimated, StepTaken
from deelbo.reproduce import LAPTOP, PAPER
from deelbo.reproduce.eta import draw
from deelbo.reproduce.kept_networks import Task, keep, keep_pair, planned_pair
from shared.reproductions import tiny_setup


def test_a_kept_network_has_its_own_objective_and_is_trained_once(tmp_path):
    setup = tiny_setup(tmp_path)
    kept = keep(Task(), setup, "de-elbo", method="de-elbo")
    draws = draw(kept.objective, kept.log_likelihood, setup.scale.settings["image"]["samples"])
    value = float(kept.objective.value(draws.log_likelihoods.mean()))
    assert value == pytest.approx(kept.result.objective, rel=1e-4)
    (path,) = (tmp_path / "out" / "runs").glob("de-elbo-*/run.json")
    written = path.stat().st_mtime_ns
    again = keep(Task(), setup, "de-elbo", method="de-elbo")
    assert path.stat().st_mtime_ns == written
    assert again.test_accuracy == kept.test_accuracy
    for name, value in again.result.model.state_dict().items():
        assert torch.equal(value, kept.result.model.state_dict()[name]), name
    assert float(again.objective.kl()) == pytest.approx(float(kept.objective.kl()))
    other = keep(Task(), setup, "de-elbo", method="de-elbo", steps=5)  # another run, in another folder
    assert other.result.settings.steps == 5
    assert len(list((tmp_path / "out" / "runs").glob("de-elbo-*/run.json"))) == 2


def test_an_interrupted_training_is_continued(tmp_path):
    def interrupts(event):
        if isinstance(event, ObjectiveEstimated):  # after the first of two rates, whose state is kept then
            raise KeyboardInterrupt

    rates = {"learning_rates": (0.1, 0.01), "lr_search": "grid"}
    with pytest.raises(KeyboardInterrupt):
        keep(Task(), tiny_setup(tmp_path, listener=interrupts), "elbo", method="elbo", **rates)
    steps = []
    setup = tiny_setup(tmp_path, listener=lambda event: isinstance(event, StepTaken) and steps.append(event))
    again = keep(Task(), setup, "elbo", method="elbo", **rates)
    assert {event.learning_rate for event in steps} == {0.01}  # the first rate was not trained again
    fresh = keep(Task(), tiny_setup(tmp_path / "fresh"), "elbo", method="elbo", **rates)
    assert again.result.values == fresh.result.values


def test_the_pair_of_figure_1(tmp_path):
    elbo, de_elbo = keep_pair(tiny_setup(tmp_path))
    assert elbo.objective.kappa == 1
    assert de_elbo.objective.kappa == pytest.approx(de_elbo.result.num_params / 18)


def test_the_task_is_the_papers():
    assert PAPER.kept_size == 1000
    for scale in (LAPTOP, PAPER):
        assert [run.method for run in planned_pair(scale)] == ["elbo", "de-elbo"]
        assert {(run.network, run.dataset, run.size) for run in planned_pair(scale)} == {
            ("ResNet-50", "cifar10", scale.kept_size)
        }
