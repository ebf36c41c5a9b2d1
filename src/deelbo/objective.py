"""The data-emphasized ELBO, an objective that learns weights and regularisation together."""

from __future__ import annotations

import functools
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
        posterior: Posterior q over the weights of a network.
        prior: Prior p over the same weights.
        num_data: N, the number of training examples.
        kappa: Weight of the log-likelihood. None for max(1, D/N), the paper's choice; 1.0 for the ELBO.

    Raises:
        ValueError: If prior and posterior have different weights, or a number is out of range.

    Example:
        >>> import torch
        >>> import deelbo
        >>> x, y = torch.randn(50, 20), torch.randint(3, (50,))
        >>> model = torch.nn.Sequential(torch.nn.Linear(20, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
        >>> posterior = deelbo.IsotropicPosterior(model)
        >>> prior = deelbo.priors.l2_zero(model, head="2")
        >>> objective = deelbo.DataEmphasizedELBO(posterior, prior, num_data=len(x))
        >>> optimizer = torch.optim.SGD(posterior.parameters(), lr=0.01)
        >>> for _ in range(3):
        ...     optimizer.zero_grad()
        ...     with posterior.sample():
        ...         torch.nn.functional.cross_entropy(model(x), y).backward()
        ...     objective.backward()  # adds the gradient of KL / (kappa N)
        ...     optimizer.step()
        >>> sorted(prior.variances)  # learned, one for each group of weights
        ['backbone', 'head']
        >>> print(f"{objective.kappa:.2f}")  # D/N = 387/50
        7.74
    """

    def __init__(
        self, posterior: GaussianPosterior, prior: GaussianPrior, num_data: int, kappa: float | None = None
    ) -> None:
        super().__init__()
        if num_data < 1:
            raise ValueError(f"num_data, the number of training examples, must be at least 1, not {num_data}")
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
        """Restore N and kappa from a `state_dict`."""
        self.num_data, self.kappa = int(state[0]), float(state[1])

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Parameter]]:
        """Iterate over the parameters of the posterior, which are all parameters to optimize."""
        return self.posterior.named_parameters(prefix, recurse, remove_duplicate)

    def backward(self, loss_scale: float | Tensor = 1.0) -> None:
        """Add the gradient of KL / (kappa N) to that of the mean NLL; call it once a step, after the `sample()` block.

        First the posterior's scale, unless it is learned by gradient, and the learned prior variances are set to where
        the objective is stationary in them, so they count as constants.

        Args:
            loss_scale: Factor by which the gradients are multiplied at this time: `scaler.get_scale()` of a GradScaler
                whose `unscale_` comes later, else 1.

        Raises:
            RuntimeError: If it is called inside a `sample()` block, if no such block has given a gradient since the
                last call, or if the objective is attached to an optimizer.
        """
        if self.posterior.attachment is not None:
            raise RuntimeError("do not call objective.backward() after attach(): optimizer.step() does so by itself")
        if self.posterior.sampling:
            raise RuntimeError("call objective.backward() after the posterior.sample() block, not inside")
        if not self.posterior.collected:
            raise RuntimeError(
                "no gradient has come from a posterior.sample() block since the last objective.backward(): "
                "call loss.backward() inside the block"
            )
        self.add_kl_gradient(loss_scale)

    def add_kl_gradient(self, loss_scale: float | Tensor) -> None:
        """Do the work of `backward` without its checks; the hooks of `attach` call it.

        Args:
            loss_scale: Factor by which the gradients are multiplied at this time.
        """
        self.posterior.collected, self.posterior.finished = False, True
        self.posterior.average_scale_gradient()
        emphasis = self.kappa * self.num_data
        weight = loss_scale / emphasis
        update = None
        if self.posterior.scale_update == "closed-form":
            update = functools.partial(self.posterior.update_scale, emphasis=emphasis, loss_scale=loss_scale)
        reuse = self.prior.update_variances(self.posterior, update)
        self.prior.add_gradient(weight, reuse)
        self.posterior.add_kl_gradient(self.prior.named_groups().values(), weight)

    def attach(self, optimizer: torch.optim.Optimizer, max_norm: float | None = None) -> Attachment:
        """Make an existing training loop optimize this objective, by hooks and without changing the loop.

        `Attachment` says what the hooks do.

        Args:
            optimizer: Optimizer of the loop; it must have all the weights of the posterior.
            max_norm: Largest norm of the whole gradient, with the KL's part, which is clipped at it; None for no limit.
                Clipping in the loop itself would come before the KL's part is added, so leave it out there.

        Returns:
            A handle whose `remove()` takes the hooks away again.

        Raises:
            ValueError: If the optimizer calls its closure several times, lacks some of the weights, or `max_norm` is
                not positive.
            RuntimeError: If the network is attached already.

        Example:
            >>> import torch
            >>> import deelbo
            >>> model = torch.nn.Linear(20, 3)
            >>> x, y = torch.randn(10, 20), torch.randint(3, (10,))
            >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
            >>> prior = deelbo.priors.GaussianPrior({"all": deelbo.priors.PriorGroup(model.parameters())})
            >>> objective = deelbo.DataEmphasizedELBO(deelbo.IsotropicPosterior(model), prior, num_data=10)
            >>> handle = objective.attach(optimizer)
            >>> for _ in range(3):  # the loop of plain training
            ...     optimizer.zero_grad()
            ...     torch.nn.functional.cross_entropy(model(x), y).backward()
            ...     optimizer.step()
            >>> handle.remove()
            >>> prior.variances["all"] != 1.0  # learned
            True
        """
        return Attachment(self, optimizer, max_norm)

    def kl(self) -> Tensor:
        """Return KL(q || p) at the current prior variances, as a float64 number without a graph."""
        return self.prior.kl(self.posterior)

    def summary(self) -> dict[str, float]:
        """Return what is learned, for logs: variances at their optimum for the present weights, scale, kappa, KL.

        Returns:
            "variance_GROUP" for each group, "scale" (its mean, if there are several), "kappa", and "kl", which is
            KL / (kappa N). Nothing is changed by it.
        """
        kept = self.prior.variances
        self.prior.update_variances(self.posterior)
        try:
            variances = {f"variance_{name}": value for name, value in self.prior.variances.items()}
            kl = float(self.kl()) / (self.kappa * self.num_data)
        finally:
            self.prior.set_variances(kept)
        log_scale = sum(self.posterior.log_det(group) for group in self.prior.named_groups().values())
        scale = math.exp(0.5 * log_scale / self.posterior.num_params)
        return {**variances, "scale": scale, "kappa": self.kappa, "kl": kl}

    def value(self, log_likelihood: Tensor | float) -> Tensor:
        """Return J = kappa * log_likelihood - KL.

        Args:
            log_likelihood: Expected log-likelihood under q, summed over the whole training set.
        """
        return self.kappa * torch.as_tensor(log_likelihood).detach().to("cpu", torch.float64) - self.kl()

    @torch.no_grad()
    def estimate(self, log_likelihood_fn: Callable[[], Tensor | float], samples: int = 10, seed: int = 0) -> Tensor:
        """Estimate J by Monte Carlo with the network in eval mode, for example to choose between finished runs.

        In eval mode dropout is off, and batch normalisation uses the statistics that the network has stored. The paper
        leaves it at that (its appendix on results), with running averages from training: of augmented examples, under
        other draws than these. `log_likelihood_fn` can give each draw its own statistics first, as `finetune` does
        unless they are frozen; J is then another number than the paper's.

        Args:
            log_likelihood_fn: Called once for each draw of the weights; returns the log-likelihood summed over the
                training set.
            samples: Number of draws.
            seed: Seed for the draws, the same for all runs to be compared; the draws of training are not affected.

        Raises:
            ValueError: If `samples` is below 1, or `log_likelihood_fn` returns more than one number.
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
            log_likelihood_fn: Called once for each draw of the weights; returns the log-likelihood summed over the
                training set.
            samples: S, the number of draws.
            seed: Seed for the draws; the draws of training are not affected.

        Raises:
            ValueError: If `samples` is below 1, or `log_likelihood_fn` returns more than one number.
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
                        f"log_likelihood_fn must return one number, a sum over the data, not shape {list(value.shape)}"
                    )
                with self.posterior.at_draw():
                    ratio = self.prior.log_prob() - self.posterior.log_prob() if ratios else torch.zeros(())
            yield value.reshape(()), ratio


def _check_same_weights(posterior: GaussianPosterior, prior: GaussianPrior) -> None:
    random = {id(p): name for name, p in posterior.means.items()}
    covered = {id(p): n for g in prior.named_groups().values() for n, p in zip(g.names, g.weights, strict=True)}
    if missing := [name for key, name in random.items() if key not in covered]:
        raise ValueError(
            f"the prior has no group for {len(missing)} weights of the posterior, such as {missing[0]!r}: "
            "add a group, or name them in the posterior's `deterministic`"
        )
    if extra := [name for key, name in covered.items() if key not in random]:
        raise ValueError(
            f"the posterior does not cover {len(extra)} parameters of the prior, such as {extra[0]!r}: "
            "freeze parameters before making both, and leave deterministic parameters out of the prior"
        )
