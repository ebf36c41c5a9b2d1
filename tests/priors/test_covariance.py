import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deelbo.priors import DiagonalPlusLowRank, PriorGroup
from shared.cases import Bare
from shared.covariances import low_rank, shapes


@settings(deadline=None, max_examples=25)
@given(shapes=shapes, rank=st.integers(0, 7), spread=st.sampled_from([1e-3, 1.0, 30.0]), centred=st.booleans())
def test_low_rank_algebra_agrees_with_dense_formulas(shapes, rank, spread, centred):
    net = Bare(*shapes)
    covariance, dense = low_rank(net, rank, spread=spread)
    mean = torch.randn(len(dense), dtype=torch.float64) if centred else None
    group = PriorGroup(dict(net.named_parameters()), mean, covariance)
    deviation = net.vector() - (mean if centred else 0)
    inverse = torch.linalg.inv(dense)
    assert group.trace_inverse == pytest.approx(float(inverse.trace()), rel=1e-8)
    assert covariance.log_det() == pytest.approx(float(torch.logdet(dense)), rel=1e-8, abs=1e-8)
    quadratic, reuse = group.quadratic()
    assert quadratic == pytest.approx(float(deviation @ inverse @ deviation), rel=1e-8)
    torch.testing.assert_close(torch.cat(list(group.inverse_diagonal())), inverse.diagonal(), rtol=1e-7, atol=1e-9)
    for kept in (reuse, None):
        net.zero_grad()
        group.variance = 2.5
        group.add_gradient(0.3, kept)
        gradient = torch.cat([p.grad.flatten() for p in net.parameters()])
        torch.testing.assert_close(gradient, 0.3 * inverse @ deviation / 2.5, rtol=1e-7, atol=1e-9)


def test_low_rank_in_channels_last_memory():
    net = Bare((4, 3, 2, 2), (5,))
    covariance, dense = low_rank(net, 3)
    group = PriorGroup(dict(net.named_parameters()), None, covariance)
    reference = group.quadratic()[0]
    net.p0.data = net.p0.data.to(memory_format=torch.channels_last)
    torch.testing.assert_close(group.quadratic()[0], reference, rtol=1e-12, atol=0)
    group.add_gradient(1.0)
    gradient = torch.cat([p.grad.flatten() for p in net.parameters()])
    torch.testing.assert_close(gradient, torch.linalg.solve(dense, net.vector()))


def test_float32_is_accurate_at_many_weights():
    size, rank = 3_000_000, 5
    generator = torch.Generator().manual_seed(0)
    net = Bare((size,), dtype=torch.float32)
    diagonal = 0.1 + 1e-4 * torch.rand(size, generator=generator)
    factors = 1e-3 * torch.randn(rank, size, generator=generator)
    group = PriorGroup([net.p0], None, DiagonalPlusLowRank([diagonal], [[u] for u in factors]))
    a, u, d = diagonal.double(), factors.double(), net.p0.detach().double()
    inner = torch.eye(rank, dtype=torch.float64) + (u / a) @ u.T
    t = torch.linalg.solve(inner, u @ (d / a))
    residual = d - t @ u
    assert group.quadratic()[0] == pytest.approx(float((residual.square() / a).sum() + t @ t), rel=1e-7)
    trace = float((1 / a).sum() - torch.linalg.solve(inner, (u / a) @ (u / a).T).trace())
    assert group.trace_inverse == pytest.approx(trace, rel=1e-7)
    group.add_gradient(1.0)
    torch.testing.assert_close(net.p0.grad.double(), residual / a, rtol=1e-4, atol=1e-5)


def test_weights_of_several_dtypes():
    weights = [
        torch.nn.Parameter(torch.randn(n, dtype=dtype)) for n, dtype in ((12, torch.float32), (5, torch.float64))
    ]
    diagonal = [0.1 + torch.rand_like(w).detach() for w in weights]
    factors = [[torch.randn_like(w).detach() for w in weights] for _ in range(3)]
    group = PriorGroup(weights, None, DiagonalPlusLowRank(diagonal, factors))
    a, d = (torch.cat([part.detach().double() for part in parts]) for parts in (diagonal, weights))
    u = torch.stack([torch.cat([part.double() for part in column]) for column in factors], 1)
    pull = torch.linalg.solve(a.diag() + u @ u.T, d)
    assert group.quadratic()[0] == pytest.approx(float(d @ pull), rel=1e-6)
    group.add_gradient(1.0)
    torch.testing.assert_close(torch.cat([w.grad.double() for w in weights]), pull, rtol=1e-5, atol=1e-5)


def test_singular_diagonals_are_refused():
    for bad in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="positive and finite"):
            DiagonalPlusLowRank([torch.tensor([1.0, bad])], [])


def test_state_dict_restores_what_is_derived():
    net = Bare((3, 4))
    first, dense = low_rank(net, 3, seed=0)
    second, _ = low_rank(net, 3, seed=1)
    second.load_state_dict(first.state_dict())
    assert second.log_det() == first.log_det() == pytest.approx(float(torch.logdet(dense)))


@pytest.mark.parametrize("diagonal", [0.1, 1e-4, 1e-6])
def test_deviations_in_the_span_of_the_factors_do_not_cancel(diagonal):
    generator = torch.Generator().manual_seed(0)
    factors = torch.randn(5, 10_000, generator=generator)
    net = Bare((10_000,), dtype=torch.float32)
    net.p0.data = factors[0] + factors[1]
    a = torch.full((10_000,), diagonal)
    group = PriorGroup([net.p0], None, DiagonalPlusLowRank([a], [[u] for u in factors]))
    u, d, a = factors.double(), net.p0.detach().double(), group.covariance.roots.get_buffer("0").double().pow(-2)
    t = torch.linalg.solve(torch.eye(5, dtype=torch.float64) + (u / a) @ u.T, u @ (d / a))
    expected = float(((d - t @ u).square() / a).sum() + t @ t)
    assert group.quadratic()[0] == pytest.approx(expected, rel=1e-4)
