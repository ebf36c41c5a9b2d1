"""The objective and its gradient: primal in two chunked passes, dual, and finite differences."""

import pytest
import torch

from deelbo.rff.evidence import Dual, Primal
from deelbo.rff.problem import Problem, split


def problem(objective, number=30, features=30, inputs=2, kappa=1.7):
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    return Problem(
        normal(number, inputs), normal(number, 2), normal(inputs, features), normal(features), objective, kappa
    )


@pytest.mark.parametrize("objective", ["lml", "de-elbo"])
@pytest.mark.parametrize("ard", [False, True])
def test_gradient_of_both_forms(objective, ard, monkeypatch):
    monkeypatch.setattr("deelbo.rff.problem.CHUNK", 0)  # then 256 rows at once
    logs = torch.tensor([0.1, -0.2, 0.3, -0.7] if ard else [0.1, 0.3, -0.7], dtype=torch.float64)
    for number, form in ((300, Primal), (20, Dual)):
        p = problem(objective, number)
        assert isinstance(p.statistics(logs), form)
        value, gradient = p.value_and_gradient(logs)

        def at(point, p=p):
            return p.value(p.statistics(point), split(point)[2]).item()

        assert value == pytest.approx(at(logs), rel=1e-12)
        for i in range(len(logs)):
            step = torch.zeros_like(logs)
            step[i] = 1e-5
            slope = (at(logs + step) - at(logs - step)) / 2e-5
            assert gradient[i].item() == pytest.approx(slope, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("objective", ["lml", "de-elbo"])
def test_primal_is_dual(objective):
    """The same Phi in both forms gives the same value."""
    p = problem(objective)
    logs = torch.tensor([0.1, 0.3, -0.7], dtype=torch.float64)
    phi, noise = p.features(p.x, logs), split(logs)[2]
    primal = Primal(phi.T @ phi, phi.T @ p.targets, p.targets.square().sum(), len(p.x))
    assert p.value(primal, noise).item() == pytest.approx(
        p.value(Dual(phi @ phi.T, phi, p.targets), noise).item(), rel=1e-9
    )


def test_some_rows_stand_for_all():
    p = problem("de-elbo", 40)
    some = p.subset(torch.arange(0, 40, 4))
    assert some.sizes == (10, 30, 2)
    assert some.unit == pytest.approx(p.unit)
    assert problem("lml", 40).subset(torch.arange(10)).kappa == 1.7
