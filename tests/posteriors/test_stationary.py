"""The scale in closed form, against the objective's own derivative and against the scale learned by gradient."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import deelbo
from deelbo.posteriors.stationary import GROWTH, RECENT, SHRINKAGE, Curvature, VarianceLines, stationary_square
from deelbo.priors import GaussianPrior, PriorGroup
from shared.cases import Net, batch, copies
from shared.covariances import low_rank


@pytest.mark.parametrize("rank", [-1, 3])
@pytest.mark.parametrize("learned", [True, False])
def test_the_objective_is_stationary_there(rank, learned):
    """The derivative of kappa N h s / 2 + KL, at the best prior variances, vanishes at the solution."""
    torch.manual_seed(0)
    net = Net()
    body = nn.ParameterList(p for name, p in net.named_parameters() if not name.startswith("head"))
    covariance = low_rank(body, rank)[0] if rank >= 0 else None
    groups = {
        "backbone": PriorGroup(body, torch.randn(sum(p.numel() for p in body), dtype=torch.float64), covariance),
        "head": PriorGroup(net.head.parameters(), variance=0.3, learned=learned),
    }
    prior, posterior = GaussianPrior(groups), deelbo.IsotropicPosterior(net, init_scale=0.1)
    found = []
    prior.update_variances(posterior, found.append)
    curvature = 400.0
    best = (
        stationary_square(
            torch.tensor(0.01, dtype=torch.float64), found[0], torch.tensor(curvature, dtype=torch.float64), 9
        )
        .sqrt()
        .item()
    )

    def loss(scale):
        posterior.set_scale(scale)
        prior.update_variances(posterior)
        return 0.5 * curvature * scale**2 + float(prior.kl(posterior))

    step = 1e-4 * best
    slope = (loss(best + step) - loss(best - step)) / (2 * step)
    assert abs(slope) < 1e-5 * curvature * best
    assert loss(best) < min(loss(0.9 * best), loss(1.1 * best))


def lines(groups):
    """Return the lines of groups (D_g, q_g) with Sigma = I."""
    sizes, quadratics = torch.tensor(groups, dtype=torch.float64).T
    return VarianceLines(quadratics / sizes, torch.ones_like(sizes), sizes, int(sizes.sum()))


def test_bounds_hold_where_the_curvature_is_negative_or_huge():
    square = torch.tensor(0.25, dtype=torch.float64)
    for curvature, bound in ((-10.0, GROWTH), (1e15, 1 / SHRINKAGE)):
        found = stationary_square(square, lines([(100, 4.0)]), torch.tensor(curvature, dtype=torch.float64))
        assert float(found.sqrt()) == pytest.approx(0.5 * bound, rel=3e-4)


@settings(deadline=None, max_examples=50)
@given(
    groups=st.lists(st.tuples(st.integers(1, 10**9), st.floats(1e-9, 1e9)), min_size=1, max_size=5),
    curvature=st.floats(1e-9, 1e12),
    scale=st.floats(1e-9, 1e3),
)
def test_the_table_finds_what_bisection_finds(groups, curvature, scale):
    total = sum(size for size, _ in groups)

    def excess(s):  # D taken out of the sum, where it would hide small terms
        return curvature * s - sum(q / (q / size + s) for size, q in groups)

    low, high = (scale / SHRINKAGE) ** 2, (scale * GROWTH) ** 2
    for _ in range(200):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if excess(middle) < 0 else (low, middle)
    arguments = (torch.tensor(value, dtype=torch.float64) for value in (scale**2, curvature))
    found = stationary_square(next(arguments), lines(groups), next(arguments))
    slope = curvature + sum(q / (q / size + high) ** 2 for size, q in groups)
    rounding = 1e-15 * total / (high * slope)  # of the sum, which has D in it
    assert float(found) == pytest.approx(high, rel=1e-7 + rounding)


def test_the_average_forgets_the_beginning():
    curvature = Curvature()
    for value in [1e3] * 10 + [2.0] * 90:
        curvature.add(torch.tensor(value, dtype=torch.float64))
    assert float(curvature.average) == pytest.approx(2.0, rel=1e-2)
    weights = [(1 + RECENT) / (t + RECENT) for t in range(1, 101)]
    kept = [w * math.prod(1 - later for later in weights[i + 1 :]) for i, w in enumerate(weights)]
    assert sum(kept) == pytest.approx(1)


def test_an_outlier_counts_as_a_large_usual_value():
    usual, outlier = Curvature(), Curvature()
    for curvature, value in ((usual, 20.0), (outlier, 1e9)):
        for _ in range(50):
            curvature.add(torch.tensor(2.0, dtype=torch.float64))
        curvature.add(torch.tensor(value, dtype=torch.float64))
    assert float(outlier.average) == pytest.approx(float(usual.average))


def test_one_step_is_the_formula():
    torch.manual_seed(0)
    net, (x, y) = Net(), batch()
    posterior = deelbo.IsotropicPosterior(net, init_scale=0.1, seed=1)
    prior = deelbo.priors.l2_sp(net, head="head")
    objective = deelbo.DataEmphasizedELBO(posterior, prior, num_data=12)
    means, squares = copies(net), sum(float(p.detach().square().sum()) for p in net.head.parameters())
    net.zero_grad()
    with posterior.sample():
        F.cross_entropy(net(x), y).backward()
        pairs = [(p.grad, p.detach() - means[n]) for n, p in net.named_parameters()]
    trace = sum(float((g * noise).sum()) for g, noise in pairs) / 0.1**2
    objective.backward()
    d_head = sum(p.numel() for p in net.head.parameters())
    equation = lines([(posterior.num_params - d_head, 0.0), (d_head, squares)])
    curvature = torch.tensor(objective.kappa * 12 * trace)
    expected = stationary_square(torch.tensor(0.01, dtype=torch.float64), equation, curvature).sqrt().item()
    assert posterior.scale.item() == pytest.approx(expected, rel=1e-8)
    assert posterior.raw_scale.grad is None  # so that the optimizer leaves it alone
    assert prior.variances["head"] == pytest.approx(expected**2 + squares / d_head, rel=1e-8)


def test_a_scaled_loss_gives_the_same_scale():
    scales = []
    for factor in (1.0, 1024.0):
        torch.manual_seed(0)
        net, (x, y) = Net(), batch()
        posterior = deelbo.IsotropicPosterior(net, init_scale=0.1, seed=1)
        objective = deelbo.DataEmphasizedELBO(posterior, deelbo.priors.l2_sp(net, head="head"), num_data=12)
        with posterior.sample():
            (factor * F.cross_entropy(net(x), y)).backward()
        objective.backward(loss_scale=factor)
        scales.append(posterior.scale.item())
    assert scales[0] == pytest.approx(scales[1], rel=1e-12)


def test_an_infinite_gradient_changes_nothing():
    net, (x, y) = Net(), batch()
    posterior = deelbo.IsotropicPosterior(net, init_scale=0.1)
    objective = deelbo.DataEmphasizedELBO(posterior, deelbo.priors.l2_sp(net, head="head"), num_data=12)
    with posterior.sample():
        (math.inf * F.cross_entropy(net(x), y)).backward()
    objective.backward()
    assert posterior.scale.item() == pytest.approx(0.1, rel=1e-12)
    assert posterior.curvature.state() == Curvature().state()


@pytest.mark.slow
def test_the_same_optimum_as_by_gradient():
    """Bayesian logistic regression, whose objective has one maximum: both ways, trained long, end there."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 20, generator=generator, dtype=torch.float64)
    y = (x[:, 0] + torch.randn(60, generator=generator, dtype=torch.float64) > 0).long()
    ends = {update: _trained(x, y, update) for update in ("closed-form", "gradient")}
    assert ends["closed-form"][0] == pytest.approx(ends["gradient"][0], rel=0.05)
    assert ends["closed-form"][1] == pytest.approx(ends["gradient"][1], abs=0.2)


def _trained(x, y, scale_update, steps=2000):
    """Return scale and objective after training."""
    net = nn.Linear(x.shape[1], 2, dtype=torch.float64)
    posterior = deelbo.IsotropicPosterior(net, init_scale=0.05, seed=0, scale_update=scale_update)
    prior = GaussianPrior({"all": PriorGroup(net.parameters(), learned=False)})
    objective = deelbo.DataEmphasizedELBO(posterior, prior, num_data=len(x), kappa=1.0)
    optimizer = torch.optim.Adam(posterior.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        optimizer.zero_grad()
        with posterior.sample():
            F.cross_entropy(net(x), y).backward()
        objective.backward()
        optimizer.step()
        schedule.step()
    return posterior.scale.item(), float(objective.estimate(lambda: -F.cross_entropy(net(x), y, reduction="sum"), 200))
