"""Running moments against numpy on a recorded path."""

import numpy as np
import pytest
import torch

from deelbo.swag import Moments


def path(number=30, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return {
        "a": torch.randn(number, 3, 2, generator=generator),
        "b": 1000 + 1e-3 * torch.randn(number, 4, generator=generator),
    }


def gather(snapshots, **options):
    weights = {name: torch.zeros_like(values[0]) for name, values in snapshots.items()}
    moments = Moments(weights, **options)
    for i in range(len(snapshots["a"])):
        for name, weight in weights.items():
            weight.copy_(snapshots[name][i])
        moments.update()
    return moments


def test_mean_variance_and_deviations_are_those_of_numpy():
    snapshots = path()
    moments = gather(snapshots, rank=5)
    for name, values in snapshots.items():
        recorded = values.double().numpy()
        np.testing.assert_allclose(moments.mean[name], recorded.mean(0), rtol=1e-6, atol=1e-6)
        means = np.cumsum(recorded, 0) / np.arange(1, 31).reshape(-1, *[1] * (recorded.ndim - 1))
        expected = (recorded - means)[:-6:-1]  # of the mean at their time, the newest first
        np.testing.assert_allclose(moments.deviations()[name], expected, rtol=1e-3, atol=2e-4)
    np.testing.assert_allclose(moments.variance()["a"], snapshots["a"].numpy().var(0), rtol=1e-5)
    # E[x^2] - E[x]^2 in single precision would be zero or negative here.
    np.testing.assert_allclose(moments.variance()["b"], snapshots["b"].double().numpy().var(0), rtol=0.2)


def test_fewer_snapshots_than_rank():
    moments = gather({name: values[:2] for name, values in path().items()}, rank=5)
    assert moments.deviations()["a"].shape == (1, 3, 2)  # the first snapshot was the mean
    assert (moments.deviations()["a"] != 0).all()
    assert gather(path(), rank=0).deviations()["a"].shape == (0, 3, 2)


def test_half_precision_deviations():
    whole, half = gather(path(), rank=4), gather(path(), rank=4, dtype=torch.bfloat16)
    assert half.deviations()["a"].dtype == torch.bfloat16
    torch.testing.assert_close(half.deviations()["a"].float(), whole.deviations()["a"], rtol=0.01, atol=1e-3)
    torch.testing.assert_close(half.variance()["a"], whole.variance()["a"])


@pytest.mark.parametrize("before", [3, 17])  # the rows are filled, or not
def test_state_goes_on_where_it_was(before):
    snapshots = path()
    first = gather({name: values[:before] for name, values in snapshots.items()}, rank=5)
    weights = {name: torch.zeros_like(values[0]) for name, values in snapshots.items()}
    second = Moments(weights, rank=5)
    second.load_state_dict({name: value.clone() for name, value in first.state_dict().items()})
    for i in range(before, 30):
        for name, weight in weights.items():
            weight.copy_(snapshots[name][i])
        second.update()
    whole = gather(snapshots, rank=5)
    for name in snapshots:
        assert torch.equal(second.mean[name], whole.mean[name])
        assert torch.equal(second.variance()[name], whole.variance()[name])
        assert torch.equal(second.deviations()[name], whole.deviations()[name])


def test_refusals():
    with pytest.raises(ValueError, match="no weights"):
        Moments({})
    with pytest.raises(ValueError, match="negative"):
        Moments({"a": torch.ones(2)}, rank=-1)
    with pytest.raises(ValueError, match="no snapshot"):
        Moments({"a": torch.ones(2)}).variance()
