"""Calibration by networks that were trained on parts of the training set."""

import copy

import pytest
import torch
from torch.utils.data import TensorDataset

import deelbo
from deelbo import events
from deelbo.folds import FoldRuns, Part, fold_of_each
from deelbo.run_folder import RunFolder
from deelbo.training.device import Execution
from deelbo.training_run import TrainingSets

FAST = {"steps": 60, "batch_size": 20, "learning_rates": (0.1,), "device": "cpu"}


def test_folds_are_even_and_share_classes():
    classes = torch.tensor([0] * 11 + [1] * 4 + [2] * 10)
    fold = fold_of_each(classes, 5, seed=1)
    assert fold.bincount().tolist() == [5] * 5
    for c in range(3):
        counts = fold[classes == c].bincount(minlength=5)
        assert counts.max() - counts.min() <= 1
    assert not torch.equal(fold, fold_of_each(classes, 5, seed=2))
    assert torch.equal(fold, fold_of_each(classes, 5, seed=1))


def test_a_part_collates_as_the_whole():
    class Whole(TensorDataset):
        def collate(self, pairs):
            return torch.stack([x for x, _ in pairs]) + 100, torch.stack([y for _, y in pairs])

    part = Part(Whole(torch.arange(5), torch.arange(5)), [4, 1])
    assert len(part) == 2
    assert part.collate([part[0], part[1]])[0].tolist() == [104, 101]


def classes(number=60):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(number, 4, generator=generator)
    noise = torch.randn(number, generator=generator)
    return TensorDataset(x, (x[:, 0] + noise > 0).long())


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 100), torch.nn.Tanh(), torch.nn.Linear(100, 2))


def test_every_example_is_predicted_by_a_network_that_has_not_seen_it(monkeypatch):
    """The fold's networks and held-out outputs are checked against training on the other examples by hand."""
    data, seen = classes(), []
    result = deelbo.finetune(network(), data, head="2", **FAST)
    runs = FoldRuns(result, network(), TrainingSets(data, data), 3, head="2", execution=Execution("cpu"))
    train = runs._outputs
    monkeypatch.setattr(
        FoldRuns, "_outputs", lambda self, k, fold: seen.append((k, fold, train(k, fold))) or seen[-1][2]
    )
    calibration = runs.calibrate()
    assert (calibration.source, calibration.folds, calibration.examples) == ("folds", 3, 60)
    assert set(calibration.unseen) == {"accuracy", "balanced_accuracy", "nll", "ece"}
    k, fold, found = seen[1]
    rest = torch.utils.data.Subset(data, (fold != k).nonzero().flatten().tolist())
    by_hand = deelbo.finetune(network(), rest, head="2", **FAST)
    outside = data.tensors[0][fold == k]
    torch.testing.assert_close(found["outputs"], by_hand.model(outside).detach())
    assert torch.equal(found["targets"], data.tensors[1][fold == k])


def test_overfitted_noise_is_found_out():
    generator = torch.Generator().manual_seed(1)
    data = TensorDataset(torch.randn(60, 30, generator=generator), torch.randint(2, (60,), generator=generator))
    model = torch.nn.Sequential(torch.nn.Linear(30, 100), torch.nn.Tanh(), torch.nn.Linear(100, 2))
    settings = {**FAST, "steps": 200}
    free = deelbo.finetune(copy.deepcopy(model), data, head="2", **settings)
    folds = deelbo.finetune(copy.deepcopy(model), data, head="2", calibrate="folds=4", **settings)
    plain = deelbo.finetune(copy.deepcopy(model), data, head="2", calibrate="none", **settings)
    assert folds.temperature > 2 * free.temperature > 2
    assert plain.temperature == 1
    x = torch.randn(500, 30, generator=generator)
    assert folds.predict(x).max(1).values.mean() < 0.6  # it says that it knows nothing
    torch.testing.assert_close(folds.predict(x, temperature=1), plain.predict(x))


def test_numbers_get_the_noise_of_unseen_targets():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(48, 20, generator=generator)
    y = 100 + 10 * (x[:, :1] + torch.randn(48, 1, generator=generator))
    model = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    settings = {**FAST, "steps": 300, "learning_rates": (0.03,)}
    result = deelbo.finetune(model, TensorDataset(x, y), head="2", calibrate="folds=4", **settings)
    new = torch.randn(2000, 20, generator=generator)
    truth = 100 + 10 * (new[:, :1] + torch.randn(2000, 1, generator=generator)).double()
    error = (result.predict(new).mean - truth).square().mean().sqrt()
    assert float(result.predict(new).std.mean()) == pytest.approx(float(error), rel=0.35)
    low, high = result.predict_sets(new, alpha=0.2).unbind(-1)
    assert float(((low <= truth) & (truth <= high)).double().mean()) == pytest.approx(0.8, abs=0.12)


def test_an_interrupted_calibration_goes_on(tmp_path):
    data = classes()
    whole = deelbo.finetune(network(), data, head="2", out=tmp_path / "whole", calibrate="folds=3", **FAST)
    steps = []

    def interrupt(event):
        if isinstance(event, events.StepTaken):
            steps.append(event)
            if len(steps) == 60 + 90:  # in the middle of the second fold
                raise KeyboardInterrupt

    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        deelbo.finetune(
            network(), data, head="2", out=out, calibrate="folds=3", checkpoint_seconds=0, listener=interrupt, **FAST
        )
    assert deelbo.load(out, network()).calibration.source == "training set"  # the run itself is finished
    assert (out / "folds" / "0.safetensors").exists()
    steps.clear()
    with pytest.raises(FileExistsError, match="finished run"):  # with another number of steps it is another run
        deelbo.finetune(network(), data, head="2", out=out, calibrate="folds=3", **{**FAST, "steps": 50})
    again = deelbo.finetune(network(), data, head="2", out=out, calibrate="folds=3", listener=steps.append, **FAST)
    calibration = again.calibration
    assert sum(isinstance(event, events.StepTaken) for event in steps) in (90, 91)  # 30 of the second fold, 60
    assert calibration.temperature == pytest.approx(whole.temperature)
    torch.testing.assert_close(calibration.scores, whole.calibration.scores)
    assert not (out / "folds").exists()
    assert deelbo.load(out, network()).calibration == whole.calibration.__class__(
        **{**whole.calibration.as_dict(), "seconds": calibration.seconds, "temperature": calibration.temperature}
    )


def test_folds_of_other_settings_are_trained_again(tmp_path):
    data = classes()
    result = deelbo.finetune(network(), data, head="2", out=tmp_path / "run", **FAST)
    folder, seen = RunFolder(tmp_path / "run"), []
    arguments = {"head": "2", "folder": folder, "execution": Execution("cpu"), "listener": seen.append}
    FoldRuns(result, network(), TrainingSets(data, data), 2, 10, **arguments).calibrate()
    for folds, steps, trained in ((2, 10, 0), (2, 20, 40), (3, 20, 60)):
        seen.clear()
        FoldRuns(result, network(), TrainingSets(data, data), folds, steps, **arguments).calibrate()
        assert sum(isinstance(event, events.StepTaken) for event in seen) == trained


def test_too_few_examples():
    data = classes(8)
    result = deelbo.finetune(network(), data, head="2", **FAST)
    with pytest.raises(ValueError, match="too few"):
        FoldRuns(result, network(), TrainingSets(data, data), 5, head="2").calibrate()


def test_a_probe_is_calibrated_by_folds_too():
    data = classes()
    result = deelbo.finetune(network(), data, head="2", method="probe", device="cpu", calibrate="folds=3")
    assert (result.calibration.source, result.calibration.folds) == ("folds", 3)
    assert 0.5 < result.temperature < 2
    assert deelbo.finetune(network(), data, head="2", method="probe", device="cpu").temperature == 1
