"""Targets of every shape and type that a dataset in Python may have."""

import math
import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import deelbo
from deelbo.likelihoods import Gaussian
from deelbo.training_run import TrainingRun

X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
Y = 2 * X[:, 0] + 1
FAST = {"steps": 5, "batch_size": 20, "learning_rates": (0.1,), "samples": 1, "device": "cpu"}


def network(outputs, flat=False):
    torch.manual_seed(0)
    layers = [nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, outputs)]
    return nn.Sequential(*layers, nn.Flatten(0)) if flat else nn.Sequential(*layers)


def finetune(targets, outputs=1, flat=False, **settings):
    data = TensorDataset(X, targets) if isinstance(targets, torch.Tensor) else targets
    return deelbo.finetune(network(outputs, flat), data, "2", **{**FAST, **settings})


def test_a_number_of_any_shape_is_the_same():
    results = [finetune(y, flat=flat) for y in (Y, Y[:, None], Y.double()) for flat in (False, True)]
    assert {result.settings.likelihood for result in results} == {"gaussian"}
    assert len({round(result.objective, 3) for result in results}) == 1
    assert all(result.predict(X[:5]).mean.shape == (5, 1) for result in results)


class Lists:
    """Examples whose labels are lists, as many datasets have them."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return X[i], self.rows[i]


def test_several_numbers_as_rows_and_as_lists():
    rows = torch.stack([Y, X[:, 1]], 1).double()
    result, other = finetune(rows, 2), finetune(Lists(rows.tolist()), 2)
    assert result.objective == other.objective
    assert result.evaluate(Lists(rows.tolist())) == result.evaluate(TensorDataset(X, rows))


def test_labels_of_any_type_are_the_same():
    rows = (X[:, :2] > 0).long()
    kinds = [rows, rows.bool(), rows.to(torch.uint8), Lists(rows.tolist())]
    results = [finetune(kind, 2) for kind in kinds] + [finetune(rows.float(), 2, likelihood="bernoulli")]
    assert len({result.objective for result in results}) == 1
    classes = [finetune(rows[:, 0].to(kind), 2) for kind in (torch.long, torch.int32, torch.uint8, torch.bool)]
    assert len({result.objective for result in classes}) == 1
    assert {result.settings.likelihood for result in classes} == {"categorical"}
    classes[2].evaluate(TensorDataset(X, rows[:, 0].to(torch.uint8)))


def test_labels_as_floats_are_a_regression_with_a_warning():
    with pytest.warns(UserWarning, match='likelihood="bernoulli"'):
        assert finetune((X[:, :2] > 0).float(), 2).settings.likelihood == "gaussian"


def test_what_cannot_be_learned():
    labels = (X[:, :2] > 0).long()
    labels[30] = 2
    with pytest.raises(ValueError, match=r"a row of 0 and 1 for each example, not \[2, 2\]"):
        finetune(labels, 2)
    broken = Y.clone()
    broken[30] = math.nan
    with pytest.raises(ValueError, match="not a finite number"):
        finetune(broken)
    with pytest.raises(ValueError, match=r"all training targets \(number 2 of 2\) are the same number"):
        finetune(torch.stack([Y, torch.full_like(Y, 3.3)], 1), 2)
    with pytest.raises(ValueError, match="targets of a regression must be floating-point numbers"):
        finetune((20 + 5 * Y.abs()).long())
    with pytest.raises(ValueError, match=r"gives \[2, 3\] for targets of shape \[2, 2\]"):
        finetune(torch.stack([Y, X[:, 1]], 1), 3)


def test_a_huge_offset_costs_no_accuracy():
    near, far = (finetune(offset + Y.double(), steps=60) for offset in (0.0, 1e9))
    errors = [
        (result.predict(X).mean.flatten() - Y - offset).abs().mean().item()
        for result, offset in ((near, 0), (far, 1e9))
    ]
    assert errors[1] == pytest.approx(errors[0], rel=0.01)
    row = far.likelihood.describe(far.predict(X[:1]), ["y"])[0]
    assert row.columns["predicted"] == pytest.approx(far.predict(X[:1]).mean.item(), abs=0.01)
    assert row.shown[0].startswith(("99999999", "100000000"))


def test_too_much_emphasis_warns_and_stays_finite():
    with pytest.warns(UserWarning, match="is above 2.02, the number of weights for each target"):
        result = finetune(Y, kappa=1e4, steps=100)
    assert math.isfinite(result.objective)
    assert result.learned["noise"] > 1e-3


def test_noise_at_its_bound_is_told(monkeypatch):
    assert Gaussian(noise=0.0015, floor=1e-3).remarks()
    assert not Gaussian(noise=0.1, floor=1e-3).remarks()
    assert not Gaussian(noise=1e-4).remarks()
    monkeypatch.setattr(Gaussian, "remarks", lambda self: ["the noise is small"])
    with pytest.warns(UserWarning, match="the noise is small"):
        finetune(Y)


def test_exports_of_networks_made_in_python(tmp_path):
    from safetensors.torch import load_file

    result = finetune(100 + Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result.export(tmp_path / "sequence")
    plain = network(1)
    plain.load_state_dict(load_file(tmp_path / "sequence" / "model.safetensors"))
    torch.testing.assert_close(plain(X).double(), result.predict(X).mean, rtol=1e-5, atol=0.0)
    with pytest.warns(UserWarning, match="are standardised"):
        finetune(100 + Y, flat=True).export(tmp_path / "other")
    assert '"units"' in (tmp_path / "other" / "model.json").read_text()


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.classifier = nn.Embedding(5, 4), nn.Linear(4, 2)

    def forward(self, input_ids):
        return self.classifier(self.embedding(input_ids).mean(1))


def test_lengths_of_training_by_default(monkeypatch):
    monkeypatch.setattr(TrainingRun, "train", lambda self: self.settings)
    texts = [{"input_ids": torch.tensor([1, 2]), "labels": 0}, {"input_ids": torch.tensor([3, 4]), "labels": 1}]
    settings = deelbo.finetune(Tokens(), texts, device="cpu")
    assert (settings.steps, settings.batch_size) == (12_000, 32)
    settings = deelbo.finetune(network(1), TensorDataset(X, Y), "2", device="cpu")
    assert (settings.steps, settings.batch_size) == (6_000, 128)
    assert deelbo.finetune(Tokens(), texts, device="cpu", steps=7).batch_size == 32
