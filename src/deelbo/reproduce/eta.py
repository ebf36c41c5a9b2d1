r"""The objectives of a trained posterior q as functions of one prior variance eta = lambda = tau (Fig. 1a, Fig. B.8).

    J(eta)   = kappa E_q[ log p(y | theta) ] - KL(q || p_eta)                          (eq:de_elbo_objective)
    J_S(eta) = log 1/S sum_s exp( kappa log p(y | theta_s) + log p_eta(theta_s) - log q(theta_s) ),  theta_s ~ q

Only the prior depends on eta. So the likelihood of each draw is computed once, and the prior's density from the squared
distance d of each group of F weights from its mean: log p_eta = -1/2 sum_g [ F_g log(2 pi eta) + d_g / eta ], where
Sigma_g adds its log determinant and weights d_g.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from deelbo._modules import eval_mode
from deelbo.objective import DataEmphasizedELBO

ETAS = tuple(10 ** (exponent / 4) for exponent in range(-32, 9))  # from 1e-8 to 1e2


@dataclass(frozen=True)
class Draws:
    """Draws from a posterior.

    Args:
        log_likelihoods: log p(y | theta_s) of the training set, [S].
        log_posteriors: log q(theta_s), [S].
        distances: (theta - mean)^T Sigma^-1 (theta - mean) of each group of the prior, [S, groups].
    """

    log_likelihoods: Tensor
    log_posteriors: Tensor
    distances: Tensor

    def first(self, number: int) -> Draws:
        """Return the first draws."""
        return Draws(self.log_likelihoods[:number], self.log_posteriors[:number], self.distances[:number])


@torch.no_grad()
def draw(objective: DataEmphasizedELBO, log_likelihood: Callable[[], Tensor], samples: int, seed: int = 0) -> Draws:
    """Draw weights from the posterior, with the network in eval mode.

    Args:
        objective: The objective, which has the posterior and the prior.
        log_likelihood: Function that returns the log-likelihood of the training set at the current weights.
        samples: S, the number of draws.
        seed: Seed of the draws; the same draws as `DataEmphasizedELBO.estimate` takes.
    """
    rows = []
    posterior, groups = objective.posterior, objective.prior.named_groups().values()
    buffers = {name: buffer.clone() for name, buffer in posterior.model.named_buffers()}
    with eval_mode(posterior.model):
        for s in range(samples):
            with posterior.sample(seed=seed * 1_000_003 + s):
                distances = [group.quadratic()[0] for group in groups]
                rows.append([float(log_likelihood()), float(posterior.log_prob()), *distances])
    for name, buffer in posterior.model.named_buffers():  # statistics of batch normalisation, which a draw may have set
        buffer.copy_(buffers[name])
    table = torch.tensor(rows, dtype=torch.float64)
    return Draws(table[:, 0], table[:, 1], table[:, 2:])


def objective_over_eta(
    objective: DataEmphasizedELBO, draws: Draws, kappa: float, etas: Sequence[float] = ETAS
) -> list[float]:
    """Return J(eta) of the posterior, with the expected log-likelihood from the draws.

    Args:
        objective: The objective, which has the posterior and the prior.
        draws: Draws from the posterior.
        kappa: Emphasis of the data; 1 for the ELBO.
        etas: Variances of all groups of the prior.
    """
    likelihood, kept = float(draws.log_likelihoods.mean()), objective.prior.variances
    values = []
    try:
        for eta in etas:
            objective.prior.set_variances(dict.fromkeys(kept, eta))
            values.append(kappa * likelihood - float(objective.kl()))
    finally:
        objective.prior.set_variances(kept)
    return values


def importance_weighted_over_eta(
    objective: DataEmphasizedELBO, draws: Draws, kappa: float, etas: Sequence[float] = ETAS
) -> list[float]:
    """Return the importance-weighted objective J_S(eta) of the draws; see `objective_over_eta` for the arguments."""
    groups = objective.prior.named_groups().values()
    sizes = torch.tensor([group.num_params for group in groups], dtype=torch.float64)
    log_dets = sum(group.covariance.log_det() for group in groups)
    values = []
    for eta in etas:
        density = sizes.sum() * math.log(2 * math.pi * eta) + log_dets + draws.distances.sum(1) / eta
        terms = kappa * draws.log_likelihoods - 0.5 * density - draws.log_posteriors
        values.append(float(terms.logsumexp(0)) - math.log(len(terms)))
    return values
