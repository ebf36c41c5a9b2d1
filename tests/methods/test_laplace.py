"""LA-LML in the training loop."""

import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

import deelbo
from deelbo.laplace import empirical_fisher
from deelbo.training.settings import Settings
from shared.candidates import candidate as shared_candidate


def digits(number=96):
    images, labels = (torch.tensor(a)[:number] for a in load_digits(return_X_y=True))
    return TensorDataset(images.float() / 16, labels)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10))


def candidate(steps=12):
    return shared_candidate(steps, method="la-lml")


def slow_evidence(model, prior, x, y):
    """The marginal likelihood of each group as a function of its log precision, by formulas written out."""
    model.eval()
    with torch.no_grad():
        value = -F.cross_entropy(model(x), y, reduction="sum").double()
    total = {}
    for name, group in prior.named_groups().items():
        fisher = torch.cat([f.flatten() for f in empirical_fisher(model, group.weights, [(x, y)])]).double()
        mean = 0 if group.mean is None else torch.cat([m.flatten() for m in group.mean.buffers()])
        d = (torch.cat([w.detach().flatten() for w in group.weights]) - mean).double()
        total[name] = (fisher, float(d @ d))
    model.train()

    def evidence(logs):
        terms = [
            0.5 * (len(fisher) * log - log.exp() * scatter - (fisher + log.exp()).log().sum())
            for (fisher, scatter), log in zip(total.values(), logs, strict=True)
        ]
        return value + sum(terms)

    return evidence


def test_variances_are_learned_at_the_end_of_an_epoch():
    running = candidate()
    seen = [dict(running.method.prior.variances) for _ in running.advance(5)]
    assert seen[0] == seen[1] == {"backbone": 1.0, "head": 1.0}
    assert seen[2] != seen[1]  # three steps are an epoch
    assert seen[3] == seen[4] == seen[2]

    other = candidate()
    for _ in other.advance(2):
        pass
    other.take_step()  # the epoch's last, and nothing after it
    x, y = other.plain_set.tensors
    evidence = slow_evidence(other.network, other.method.prior, x, y)
    logs = -torch.tensor(list(seen[2].values()), dtype=torch.float64).log()
    logs.requires_grad_()
    (gradient,) = torch.autograd.grad(evidence(logs), logs)
    assert gradient.abs().max() < 1e-2  # of thousands of weights
    assert running.history[0]["evidence"] == pytest.approx(float(evidence(logs.detach())) / 96, rel=1e-5)


def test_the_value_that_chooses_is_the_evidence():
    running = candidate()
    for _ in running.advance(12):
        pass
    value = running.objective(final=True)
    x, y = running.plain_set.tensors
    evidence = slow_evidence(running.network, running.method.prior, x, y)
    logs = -torch.tensor(list(running.method.prior.variances.values()), dtype=torch.float64).log()
    assert value == pytest.approx(float(evidence(logs)), rel=1e-5)


def test_finetune_learns_and_resumes_bit_for_bit(tmp_path):
    options = {"method": "la-lml", "prior": "l2-zero", "learning_rates": (0.1,), "steps": 60, "batch_size": 32}
    whole = deelbo.finetune(network(), digits(), "3", **options)
    assert whole.evaluate(digits())["accuracy"] > 0.9
    assert whole.scale is None
    assert whole.prior_variances["backbone"] != 1.0

    class Kill(Exception):
        pass

    def kill(event):
        if getattr(event, "step", None) == 31:
            raise Kill

    with pytest.raises(Kill):
        deelbo.finetune(network(), digits(), "3", out=tmp_path / "run", checkpoint_seconds=0, listener=kill, **options)
    again = deelbo.finetune(network(), digits(), "3", out=tmp_path / "run", **options)
    assert again.objective == whole.objective
    assert again.prior_variances == whole.prior_variances
    loaded = deelbo.load(tmp_path / "run", network())
    assert loaded.prior_variances == whole.prior_variances


def test_every_rate_is_trained_in_full_unless_a_race_is_asked_for():
    rates = {"learning_rates": (0.03, 0.01), "steps": 40, "batch_size": 32, "device": "cpu"}
    result = deelbo.finetune(network(), digits(), "3", method="la-lml", **rates)
    assert {step: set(values) for step, values in result.values.items()} == {40: {0.03, 0.01}}
    assert {row["learning_rate"] for row in result.history if row["step"] == 40} == {0.03, 0.01}
    assert result.settings.lr_search == result.settings.as_dict()["lr_search"] == "grid"
    assert Settings(method="la-lml", lr_search="race").lr_search == "race"
    assert {name: Settings(method=name).lr_search for name in ("de-elbo", "elbo")} == dict.fromkeys(
        ("de-elbo", "elbo"), "race"
    )
