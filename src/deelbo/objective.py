"""The data-emphasized ELBO."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from deelbo._modules import eval_mode
from deelbo.attachment import Attachment
from deelbo.posteriors import GaussianPosterior
from deelbo.priors import GaussianPrior


class DataEmphasizedELBO(nn.Module):
    r"""J = kappa * E_q[ sum_i log p(y_i | theta) ] - KL(q(theta) || p(theta))   (`eq:de_elbo_objective`).

    Training minimises -J / (kappa N) = mean NLL + KL / (kappa N), so that learning rates keep their usual meaning.

    Args:
        posterior: q over the weights of a network.
        prior: p over the same weights.
        num_data: N, the size of the training set.
        kappa: How much the data are emphasized. None for max(1, D/N), the paper's choice; 1.0 gives the ELBO.

    Raises:
        ValueError: If prior and posterior are not about the same weights, or a number is out of range.
    """

    def __init__(
        self, posterior: GaussianPosterior, prior: GaussianPrior, num_data: int, kappa: float | None = None
    ) -> None:
        super().__init__()
        if num_data < 1:
            raise ValueError(f"num_data is the size of the training set, at least 1, not {num_data}")
        kappa = max(1.0, posterior.num_params / num_data) if kappa is None else kappa
        if not 0 < kappa < math.inf:
            raise ValueError(f"kappa must be positive and finite, not {kappa}")
        _check_same_weights(posterior, prior)
        self.posterior = posterior
        self.prior = prior
        self.num_data = int(num_data)
        self.kappa = float(kappa)

    def get_extra_state(self) -> Tensor:
        """Return N and kappa, for `state_dict`."""
        return torch.tensor([self.num_data, self.kappa], dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        """Take N and kappa from a `state_dict`."""
        self.num_data, self.kappa = int(state[0]), float(state[1])

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Parameter]]:
        """Iterate over the parameters of the posterior: all that the optimizer should move."""
        return self.posterior.named_parameters(prefix, recurse, remove_duplicate)

    def backward(self, loss_scale: float = 1.0) -> None:
        """Add the rest of the gradient of mean NLL + KL / (kappa N), after the loss's own `backward()`; once a step.

        First the learned prior variances move to their optimum; there dKL/dv = 0, so they count as constants.

        Args:
            loss_scale: By what the losses were multiplied and not divided again: `scaler.get_scale()` of a GradScaler
                whose `unscale_` comes later.

        Raises:
            RuntimeError: Inside a `sample()` block, if no such block has brought a gradient since the last call, or if
                the objective is attached.
        """
        if self.posterior.attachment is not None:
            raise RuntimeError("the objective is attached: optimizer.step() calls this by itself")
        if self.posterior.sampling:
            raise RuntimeError("call objective.backward() after the posterior.sample() block, not inside")
        if not self.posterior.collected:
            raise RuntimeError(
                "no gradient has come from a posterior.sample() block since the last objective.backward(): "
                "call loss.backward() inside the block"
            )
        self.add_kl_gradient(loss_scale)

    def add_kl_gradient(self, loss_scale: float) -> None:
        """Do what `backward` says, unasked; for hooks."""
        self.posterior.collected, self.posterior.finished = False, True
        self.posterior.average_scale_gradient()
        weight = loss_scale / (self.kappa * self.num_data)
        reuse = self.prior.update_variances(self.posterior)
        self.prior.add_gradient(weight, reuse)
        self.posterior.add_kl_gradient(self.prior.named_groups().values(), weight)

    def attach(self, optimizer: torch.optim.Optimizer) -> Attachment:
        """Train an existing loop on this objective without changing it; see `Attachment`.

        Args:
            optimizer: The loop's optimizer, over all the weights of the posterior.

        Returns:
            A handle whose `remove()` makes the loop what it was.

        Raises:
            ValueError: If the optimizer needs closures, or lacks some of the weights.
        """
        return Attachment(self, optimizer)

    def kl(self) -> Tensor:
        """Return KL(q || p) at the current prior variances, a float64 number without a graph."""
        return self.prior.kl(self.posterior)

    def value(self, log_likelihood: Tensor | float) -> Tensor:
        """Return J = kappa * log_likelihood - KL.

        Args:
            log_likelihood: The (expected) log-likelihood of the whole training set.
        """
        return self.kappa * torch.as_tensor(log_likelihood).detach().to("cpu", torch.float64) - self.kl()

    @torch.no_grad()
    def estimate(self, log_likelihood_fn: Callable[[], Tensor | float], samples: int = 10, seed: int = 0) -> Tensor:
        """Estimate J with fresh draws from q, in eval mode, as for choosing between finished runs.

        Eval mode because batch normalisation must use the statistics that predictions will use (Appendix B.6).

        Args:
            log_likelihood_fn: Called once a draw; returns the sum over the training set at the weights in place.
            samples: Number of draws.
            seed: Of the draws; the same draws serve all candidates, and training's own sequence is left alone.
        """
        with eval_mode(self.posterior.model):
            values = [v for v, _ in self._draws(log_likelihood_fn, samples, seed)]
        return self.value(torch.stack(values).mean())

    @torch.no_grad()
    def estimate_importance_weighted(
        self, log_likelihood_fn: Callable[[], Tensor | float], samples: int = 50, seed: int = 0
    ) -> Tensor:
        r"""Estimate log 1/S sum_s exp( kappa log p(y | theta_s) + log p(theta_s) - log q(theta_s) ), in eval mode.

        The IWELBO for kappa = 1, a tighter bound than the ELBO; the DE-IWELBO of Appendix B.7 otherwise.

        Args:
            log_likelihood_fn: Called once a draw; returns the sum over the training set at the weights in place.
            samples: S, the number of draws.
            seed: Of the draws.
        """
        with eval_mode(self.posterior.model):
            terms = [self.kappa * v + ratio for v, ratio in self._draws(log_likelihood_fn, samples, seed, ratios=True)]
        return torch.logsumexp(torch.stack(terms), 0) - math.log(samples)

    def _draws(
        self, log_likelihood_fn: Callable[[], Tensor | float], samples: int, seed: int, ratios: bool = False
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield log p(y | theta_s) and, if asked for, log p(theta_s) - log q(theta_s)."""
        if samples < 1:
            raise ValueError(f"samples must be at least 1, not {samples}")
        for s in range(samples):
            with self.posterior.sample(seed=seed * 1_000_003 + s):
                value = torch.as_tensor(log_likelihood_fn()).detach().to("cpu", torch.float64)
                if value.numel() != 1:
                    raise ValueError(
                        f"log_likelihood_fn must return one number, the sum, not shape {list(value.shape)}"
                    )
                ratio = self.prior.log_prob() - self.posterior.log_prob() if ratios else torch.zeros(())
            yield value.reshape(()), ratio


def _check_same_weights(posterior: GaussianPosterior, prior: GaussianPrior) -> None:
    random = {id(p): name for name, p in posterior.means.items()}
    covered = {id(p): n for g in prior.named_groups().values() for n, p in zip(g.names, g.weights, strict=True)}
    if missing := [name for key, name in random.items() if key not in covered]:
        raise ValueError(f"the prior has no group for {len(missing)} weights of the posterior, such as {missing[0]!r}")
    if extra := [name for key, name in covered.items() if key not in random]:
        raise ValueError(
            f"the posterior does not cover {len(extra)} parameters of the prior, such as {extra[0]!r}: "
            "make both after freezing, and leave deterministic parameters out of the prior"
        )
