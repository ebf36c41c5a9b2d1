"""One run of a comparison, its numbers computed again by hand."""

import dataclasses
import json
import math

import pytest
import torch

from deelbo.compare import Records
from deelbo.compare.running import divide, held_out_number, read_data, run_trial
from deelbo.data import split
from deelbo.finetuning import finetune
from deelbo.laplace import LaplacePosterior, empirical_fisher
from deelbo.training.batches import in_order
from shared.comparisons import small_options, small_problems


def prepared(trial):
    """The network, training and held-out sets of a run on four fifths."""
    data = split(read_data(dataclasses.replace(trial.data_spec, train_size=None), None), 18, None, trial.settings.seed)
    train, held = divide(data.train, data.targets, trial.settings.seed)
    network, reader = trial.model_spec.load(data, trial.settings.seed)
    sets = reader.training_sets(train)
    return network, *sets, reader.dataset(held)


def test_validation_and_conditional_likelihood_by_hand(tmp_path):
    (problem,) = small_problems(tmp_path)
    trial = problem.point((0.01, 0.01), 0.1, whole=False, clml=True)
    record = run_trial(trial, Records(tmp_path / "records"), "cpu")

    network, train_set, plain_set, held_set = prepared(trial)
    prior = trial.settings.prior_recipe().make(network)
    result = finetune(network, train_set, plain_train_set=plain_set, device="cpu", **trial.settings.as_dict())
    assert record["validation"] == pytest.approx(result.evaluate(held_set))
    assert record["num_data"] == 14

    cpu = torch.device("cpu")
    prior.set_variances({"backbone": 1 / 0.14, "head": 1 / 0.14})
    fisher = {n: empirical_fisher(result.model, g.weights, in_order(plain_set, 5, cpu))
              for n, g in prior.named_groups().items()}  # fmt: skip
    posterior = LaplacePosterior(prior, fisher, 0.0)
    labels = torch.tensor(held_set.examples.labels)
    found = {}
    for temperature in (1.0, 0.01):
        sums, average = [], 0
        for seed in range(3):
            with posterior.sample(seed, temperature):
                p = result.predict_dataset(held_set)
            sums.append(p[torch.arange(4), labels].log().sum())
            average = average + p / 3
        right = average.argmax(1) == labels
        accuracy = sum(float(right[labels == c].double().mean()) for c in labels.unique()) / len(labels.unique())
        found[temperature] = accuracy, float(torch.logsumexp(torch.stack(sums), 0)) - math.log(3)
    best = max(found, key=lambda temperature: found[temperature][0])
    expected = {"value": found[best][1], "temperature": best, "score": found[best][0]}
    assert record["clml"] == pytest.approx(expected, rel=1e-4)


def test_the_test_set_never_changes_and_subsets_do(tmp_path):
    problems = small_problems(tmp_path, seeds=[1, 2])
    records = [
        run_trial(problem.trial(method="elbo", learning_rates=(0.1,)), Records(tmp_path / "r"), "cpu")
        for problem in problems
    ]
    assert [record["tested"] for record in records] == [9, 9]
    data = read_data(problems[0].data_spec, None)
    subsets = [split(data, 18, None, seed).train.names for seed in (1, 2)]
    assert subsets[0] != subsets[1]
    json.dumps(records, allow_nan=False)  # nothing that JSON lacks


def test_a_fifth_is_held_out_by_class():
    data = [i % 3 for i in range(30)]
    assert held_out_number(data) == 6
    assert held_out_number([0, 0, 1, 1, 2, 2]) == 3
    with pytest.raises(ValueError, match="single"):
        held_out_number([0, 0, 1])


def test_a_diverged_run_has_a_record_too(tmp_path):
    (problem,) = small_problems(tmp_path)
    trial = problem.trial(
        method="map", prior_variances={"backbone": 1e-30, "head": 1e-30}, learning_rates=(1e6,), clip=None
    )
    with pytest.warns(UserWarning, match="diverged"):
        record = run_trial(trial, Records(tmp_path / "records"), "cpu")
    assert record["diverged"]
    assert record["test"] is None
    assert record["seconds"]["training"] > 0
    json.dumps(record, allow_nan=False)


def test_killed_while_it_is_tested(tmp_path):
    """The training of a run that was cut off afterwards is not repeated."""
    (problem,) = small_problems(tmp_path)
    trial, records = problem.point((0.01, 0.01), 0.1, whole=False, clml=True), Records(tmp_path / "r")
    whole = run_trial(trial, Records(tmp_path / "other"), "cpu")
    run_trial(trial, records, "cpu")
    assert (records.work(trial.key) / "model.safetensors").exists()  # until the record is kept
    steps = []
    again = run_trial(trial, records, "cpu", steps.append)
    assert steps == []
    assert again["clml"] == whole["clml"]
    assert again["test"] == whole["test"]
    assert again["seconds"]["training"] > 0


def test_data_that_changed_are_refused(tmp_path):
    (problem,) = small_problems(tmp_path)
    trial = dataclasses.replace(problem.trial(), data="0" * 32)
    with pytest.raises(ValueError, match="no longer, those that the comparison began with"):
        run_trial(trial, Records(tmp_path / "records"), "cpu")


def test_impossible_predictions_have_a_finite_conditional_likelihood(tmp_path):
    """Draws from a wide posterior put hundreds of nats on wrong classes: more than a probability can hold."""
    settings = {"steps": 8, "batch_size": 6, "samples": 2, "head_start": "random"}
    (problem,) = small_problems(tmp_path, small_options(temperatures=(1e8,), settings=settings))
    trial = problem.point((0.01, 0.01), 0.01, whole=False, clml=True)
    record = run_trial(trial, Records(tmp_path / "records"), "cpu")
    assert record["clml"]["value"] < -1000
