"""Calibration by networks that were trained on parts of the training set."""

import copy

import pytest
import torch
from torch.utils.data import TensorDataset

import deelbo
from deelbo import events
from deelbo.folds import FoldRuns, Part, fold_of_each
from deelbo.likelihoods import Categorical
from deelbo.likelihoods.temperature import held_out_factor
from deelbo.run_folder import RunFolder
from deelbo.training.calibration import SPREAD
from deelbo.training.device import Execution
from deelbo.training.sets import TrainingSets

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
    assert not hasattr(part, "skip")
    seen = []
    part.whole.skip = seen.append
    Part(part.whole, [4, 1]).skip(1)
    assert seen == [1]


def classes(number=60):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(number, 4, generator=generator)
    noise = torch.randn(number, generator=generator)
    return TensorDataset(x, (x[:, 0] + noise > 0).long())


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 100), torch.nn.Tanh(), torch.nn.Linear(100, 2))


def test_every_example_is_predicted_by_a_network_that_has_not_seen_it():
    """The fold's networks and held-out outputs are checked against training on the other examples by hand."""
    data = classes()
    result = deelbo.finetune(network(), data, head="2", **FAST)
    runs = FoldRuns(result, network(), TrainingSets(data, data), 3, head="2", execution=Execution("cpu"))
    calibration = runs.calibrate()
    assert (calibration.source, calibration.folds, calibration.examples) == ("folds", 3, 60)
    assert set(calibration.unseen) == {"accuracy", "balanced_accuracy", "nll", "ece"}
    fold, found = fold_of_each(data.tensors[1], 3, result.settings.seed), runs.left_out(1)
    rest = torch.utils.data.Subset(data, (fold != 1).nonzero().flatten().tolist())
    by_hand = deelbo.finetune(network(), rest, head="2", **FAST)
    outside = data.tensors[0][fold == 1]
    torch.testing.assert_close(found["outputs"], by_hand.model(outside).detach())
    assert torch.equal(found["targets"], data.tensors[1][fold == 1])


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


def test_numbers_of_a_fold_are_in_the_units_of_the_run(monkeypatch):
    """Each fold standardises by its own targets; what it predicts is compared in the user's units."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(30, 3, generator=generator)
    data = TensorDataset(x, 50 + 7 * x[:, :1].exp())
    model = torch.nn.Sequential(torch.nn.Linear(3, 1))
    result = deelbo.finetune(copy.deepcopy(model), data, head="0", **FAST)
    runs = FoldRuns(result, copy.deepcopy(model), TrainingSets(data, data), 3, head="0", execution=Execution("cpu"))
    fold = fold_of_each(torch.zeros(30, dtype=torch.long), 3, result.settings.seed)
    found = runs.left_out(0)
    rest = torch.utils.data.Subset(data, (fold != 0).nonzero().flatten().tolist())
    by_hand = deelbo.finetune(copy.deepcopy(model), rest, head="0", **FAST)
    mean = result.likelihood.prediction(result.likelihood.averageable(found["outputs"])).mean
    torch.testing.assert_close(mean, by_hand.predict(x[fold == 0]).mean, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("steps", [None, 20])
def test_what_is_taken_over_is_how_wrong_the_free_factor_is(steps):
    """T = 1 / (rho s*), with rho from outputs that are scaled by each fold's own s*."""
    data = classes()
    data.tensors[1][::6] = 0  # some are wrong, which the network learns by heart
    result = deelbo.finetune(network(), data, head="2", **{**FAST, "steps": 400, "learning_rates": (0.3,)})
    runs = FoldRuns(result, network(), TrainingSets(data, data), 3, steps, head="2", execution=Execution("cpu"))
    found = [runs.left_out(k) for k in range(3)]
    assert {float(part["factor"]) for part in found} != {1.0} or steps
    outputs = torch.cat([part["factor"] * part["outputs"] for part in found])
    rho = held_out_factor(outputs, torch.cat([part["targets"] for part in found]), Categorical(), 1.0, SPREAD)
    assert result.temperature > 1.05  # the run's own 1 / s*
    assert runs.calibrate().temperature == pytest.approx(result.temperature / rho, rel=0.02)


def test_class_weights_after_loading(tmp_path):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 4, generator=generator)
    data = TensorDataset(x, (x[:, 0] > 1).long())
    options = {**FAST, "class_weights": "balanced", "steps": 200}
    whole = deelbo.finetune(network(), data, head="2", out=tmp_path / "whole", calibrate="folds=3", **options)
    deelbo.finetune(network(), data, head="2", out=tmp_path / "run", **options)
    again = deelbo.finetune(network(), data, head="2", out=tmp_path / "run", calibrate="folds=3", **options)
    assert again.temperature == pytest.approx(whole.temperature)


def test_folds_start_from_the_pretrained_network_or_not_at_all(tmp_path):
    """The same object, trained by the first call, is not what folds start from; nor are other examples."""
    data, model = classes(), network()
    deelbo.finetune(model, data, head="2", out=tmp_path / "run", **FAST)
    other = TensorDataset(data.tensors[0], 1 - data.tensors[1])
    for net, examples in ((model, data), (network(), other)):
        with pytest.raises(ValueError, match="other weights or other examples"):
            deelbo.finetune(net, examples, head="2", out=tmp_path / "run", calibrate="folds=3", **FAST)


def test_labels_that_do_not_count():
    data = classes()
    data.tensors[1][::7] = -100
    result = deelbo.finetune(network(), data, head="2", calibrate="folds=3", **FAST)
    assert result.calibration.examples == int((data.tensors[1] >= 0).sum())


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


def test_too_few_examples_are_refused_before_training(tmp_path):
    with pytest.raises(ValueError, match="too few"):
        deelbo.finetune(network(), classes(8), head="2", out=tmp_path / "run", calibrate="folds=5", **FAST)
    assert not (tmp_path / "run" / "run.json").exists()


def test_a_probe_is_calibrated_by_folds_too():
    data = classes()
    result = deelbo.finetune(network(), data, head="2", method="probe", device="cpu", calibrate="folds=3")
    assert (result.calibration.source, result.calibration.folds) == ("folds", 3)
    assert 0.5 < result.temperature < 2
    assert deelbo.finetune(network(), data, head="2", method="probe", device="cpu").temperature == 1
