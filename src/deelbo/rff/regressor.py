"""Gaussian-process regression in a time linear in N, as a scikit-learn estimator."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from deelbo._extras import require
from deelbo.rff.evidence import Dual, Primal, isotropic_objective, log_marginal_likelihood
from deelbo.rff.features import fourier_features

try:
    from sklearn.base import BaseEstimator, RegressorMixin
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.utils.validation import check_is_fitted, check_random_state, validate_data
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f'{error.name} is missing: pip install "deelbo[rff]"', name=error.name) from error

OBJECTIVES = ("lml", "de-elbo", "elbo")
CHUNK = 8192  # rows whose features are in memory at once
STARTS = (0.5, 2.0)  # of the lengthscale, in units of the inputs' spread
NOISE_FLOOR = 1e-3  # of the targets' standard deviation


class RFFRegressor(RegressorMixin, BaseEstimator):
    """Bayesian regression on random Fourier features: lengthscale, outputscale and noise are learned.

    Args:
        num_features: R, the quality of the approximation of a Gaussian process with an RBF kernel.
        objective: "lml" (the exact posterior and the marginal likelihood, default), "de-elbo" or "elbo" (an isotropic
            posterior). The isotropic ones are here to study the objective: on tabular data the exact posterior is
            better by far, and costs no more.
        kappa: Of "de-elbo"; None for max(1, D/N). Above D/N the objective has no maximum once the features can
            interpolate the data: it grows without bound as the noise goes to zero.
        ard: Whether each input has a lengthscale of its own.
        normalize_y: Whether targets are standardised for the fit.
        max_iter: Evaluations of the objective from each start.
        random_state: Of A and b.

    Attributes:
        lengthscale_: Learned, in units of the inputs; a number, or an array with `ard`.
        outputscale_: Learned standard deviation of the function, in units of the targets.
        noise_: Learned standard deviation of the noise, in units of the targets.
        scale_: Standard deviation of the isotropic posterior; None for "lml".
        objective_: The maximum.
        n_features_in_: Inputs.
    """

    def __init__(
        self,
        num_features: int = 1024,
        *,
        objective: str = "lml",
        kappa: float | None = None,
        ard: bool = False,
        normalize_y: bool = True,
        max_iter: int = 100,
        random_state: Any = None,
    ) -> None:
        self.num_features = num_features
        self.objective = objective
        self.kappa = kappa
        self.ard = ard
        self.normalize_y = normalize_y
        self.max_iter = max_iter
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        """One or several targets."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any) -> RFFRegressor:
        """Learn the hyperparameters and the posterior.

        Args:
            X: Inputs, [N, features].
            y: Targets, [N] or [N, outputs].

        Raises:
            ValueError: If a parameter or the data are not what they should be.
        """
        if self.objective not in OBJECTIVES:
            raise ValueError(f"objective={self.objective!r}, but it is one of {', '.join(OBJECTIVES)}")
        if self.num_features < 1:
            raise ValueError(f"num_features={self.num_features} must be positive")
        X, y = validate_data(self, X, y, multi_output=True, y_numeric=True, dtype="float64", ensure_min_samples=2)
        self._one_output = y.ndim == 1
        x, targets = torch.tensor(X), torch.tensor(y, dtype=torch.float64).reshape(len(y), -1)
        shift, spread = targets.mean(0), targets.std(0, correction=0)
        spread = torch.where(spread > 0, spread, torch.ones_like(spread))
        if not self.normalize_y:
            shift, spread = torch.zeros_like(shift), torch.ones_like(spread)
        self._shift, self._spread = shift, spread
        targets = (targets - shift) / spread
        random = check_random_state(self.random_state)
        shape = (x.shape[1], self.num_features)
        self._A = torch.from_numpy(random.standard_normal(shape))
        self._b = torch.from_numpy(random.uniform(0, 2 * torch.pi, self.num_features))
        self._sizes = (len(x), self.num_features, targets.shape[1])
        self._kappa = self._emphasis()
        floor = NOISE_FLOOR * (float(targets.std(correction=0)) or 1.0)
        best = self._maximise(x, targets, floor)
        self._keep(x, targets, best, floor)
        return self

    def _emphasis(self) -> float:
        number, features, outputs = self._sizes
        if self.objective == "elbo":
            return 1.0
        return max(1.0, features * outputs / number) if self.kappa is None else float(self.kappa)

    # ---- the objective as a function of log lengthscale(s), log outputscale, log noise ----

    def _split(self, logs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        positive = logs.exp()
        return positive[:-2] if self.ard else positive[0], positive[-2], positive[-1]

    def _features(self, x: Tensor, logs: Tensor) -> Tensor:
        lengthscale, outputscale, _ = self._split(logs)
        return fourier_features(x, self._A, self._b, lengthscale, outputscale)

    def _value(self, stats: Primal | Dual, noise: Tensor) -> Tensor:
        if self.objective == "lml":
            return log_marginal_likelihood(stats, noise**2, self._sizes)[0]
        return isotropic_objective(stats, noise**2, self._kappa, self._sizes)[0]

    def _value_and_gradient(self, logs: Tensor, x: Tensor, targets: Tensor) -> tuple[float, Tensor]:
        logs = logs.detach().requires_grad_()
        if len(x) < self.num_features:
            value = self._value(Dual(self._features(x, logs), targets), self._split(logs)[2])
            (gradient,) = torch.autograd.grad(value, logs)
            return value.item(), gradient
        # Two passes over the rows, so that no graph holds N R numbers: the statistics and the gradient with respect to
        # them, then what each chunk's features contribute to that.
        stats = self._statistics(x, targets, logs.detach())
        stats.gram.requires_grad_()
        stats.cross.requires_grad_()
        value = self._value(stats, self._split(logs)[2])
        by_gram, by_cross, gradient = torch.autograd.grad(value, (stats.gram, stats.cross, logs))
        for rows, part in _chunks(x, targets):
            features = self._features(rows, logs)
            weights = features.detach() @ (by_gram + by_gram.T) + part @ by_cross.T
            gradient = gradient + torch.autograd.grad((features * weights).sum(), logs)[0]
        return value.item(), gradient

    @torch.no_grad()
    def _statistics(self, x: Tensor, targets: Tensor, logs: Tensor) -> Primal:
        gram = torch.zeros(self.num_features, self.num_features, dtype=x.dtype)
        cross = torch.zeros(self.num_features, targets.shape[1], dtype=x.dtype)
        for rows, part in _chunks(x, targets):
            features = self._features(rows, logs)
            gram += features.T @ features
            cross += features.T @ part
        return Primal(gram, cross, targets.square().sum(), len(x))

    def _maximise(self, x: Tensor, targets: Tensor, floor: float) -> Tensor:
        """L-BFGS from several lengthscales; the noise has a lower bound, for want of a maximum above kappa = D/N."""
        optimize, numpy = require("scipy.optimize", "rff"), require("numpy", "rff")
        spread = max(float(x.std(0, correction=0).square().mean().sqrt()), 1e-6) * x.shape[1] ** 0.5

        def negative(logs: Any) -> tuple[float, Any]:
            try:
                value, gradient = self._value_and_gradient(torch.from_numpy(logs), x, targets)
            except torch.linalg.LinAlgError:  # a kernel that is singular to working precision
                return 1e300, numpy.zeros_like(logs)
            return -value, -gradient.numpy()

        number = x.shape[1] if self.ard else 1
        log_floor, log_spread = float(numpy.log(floor)), float(numpy.log(spread))
        bounds = [(log_spread - 7, log_spread + 7)] * number + [(-7.0, 7.0), (log_floor, log_floor + 12)]
        runs = []
        for start in STARTS:
            lengthscales = [log_spread + numpy.log(start)] * number
            first = numpy.array([*lengthscales, 0.0, log_floor + numpy.log(0.1 / NOISE_FLOOR)])
            options = {"maxiter": self.max_iter}
            runs.append(optimize.minimize(negative, first, jac=True, method="L-BFGS-B", bounds=bounds, options=options))
        best = min(runs, key=lambda run: run.fun)
        if best.x[-1] <= log_floor + 1e-6:
            warnings.warn(
                f"the noise is at its lower bound ({NOISE_FLOOR:g} of the targets' spread): the features interpolate "
                "the data, and the predicted uncertainty is not to be trusted",
                ConvergenceWarning,
                stacklevel=3,
            )
        self.n_iter_ = int(best.nit)
        self.objective_ = -float(best.fun)
        return torch.from_numpy(best.x)

    # ---- the posterior at the maximum ----

    @torch.no_grad()
    def _keep(self, x: Tensor, targets: Tensor, logs: Tensor, floor: float) -> None:
        lengthscale, outputscale, noise = self._split(logs)
        self._logs = logs
        dual = len(x) < self.num_features
        stats = Dual(self._features(x, logs), targets) if dual else self._statistics(x, targets, logs)
        if self.objective == "lml":
            _, self._mean = log_marginal_likelihood(stats, noise**2, self._sizes)
            self.scale_: float | None = None
            self._factor: tuple[str, Tensor, Tensor] | None = self._posterior_factor(stats, noise)
        else:
            _, self._mean, variance = isotropic_objective(stats, noise**2, self._kappa, self._sizes)
            self.scale_, self._factor = float(variance.sqrt()), None
        unit = float(self._spread.square().mean().sqrt())
        self.lengthscale_ = lengthscale.numpy() if self.ard else float(lengthscale)
        self.outputscale_, self.noise_ = float(outputscale) * unit, float(noise) * unit

    def _posterior_factor(self, stats: Primal | Dual, noise: Tensor) -> tuple[str, Tensor, Tensor]:
        """What the variance of phi^T v under the exact posterior needs."""
        if isinstance(stats, Dual):
            kernel = stats.features @ stats.features.T + noise**2 * torch.eye(len(stats.features), dtype=noise.dtype)
            return "dual", torch.linalg.cholesky(kernel), stats.features
        gram = stats.gram / noise**2 + torch.eye(len(stats.gram), dtype=noise.dtype)
        return "primal", torch.linalg.cholesky(gram), torch.empty(0)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return the mean of the targets and, if asked, their standard deviation (of function and noise together).

        Args:
            X: Inputs, [M, features].
            return_std: Whether to return both.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype="float64", reset=False)
        means, variances = [], []
        for rows in torch.tensor(X).split(CHUNK):
            features = self._features(rows, self._logs)
            means.append(features @ self._mean * self._spread + self._shift)
            variances.append(self._variance(features) + self._split(self._logs)[2] ** 2)
        mean = torch.cat(means)
        std = torch.cat(variances).sqrt()[:, None] * self._spread
        if self._one_output:
            mean, std = mean[:, 0], std[:, 0]
        return (mean.numpy(), std.numpy()) if return_std else mean.numpy()

    def _variance(self, features: Tensor) -> Tensor:
        """Of phi^T v, for each row."""
        total = features.square().sum(1)
        if self._factor is None or self.scale_ is not None:
            return (self.scale_ or 0.0) ** 2 * total
        form, factor, training = self._factor
        if form == "primal":
            return torch.linalg.solve_triangular(factor, features.T, upper=False).square().sum(0)
        # I - Phi^T (Phi Phi^T + s2 I)^-1 Phi, by the Woodbury identity
        reduced = torch.linalg.solve_triangular(factor, training @ features.T, upper=False).square().sum(0)
        return (total - reduced).clamp(min=0)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> Any:
        """Draw targets at each input from the predictive distribution, independently: [M, n_samples].

        Args:
            X: Inputs, [M, features].
            n_samples: Draws.
            random_state: Of the draws.
        """
        mean, std = self.predict(X, return_std=True)
        draws = check_random_state(random_state).standard_normal((*mean.shape, n_samples))
        return mean[..., None] + std[..., None] * draws


def _chunks(x: Tensor, targets: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    return zip(x.split(CHUNK), targets.split(CHUNK), strict=True)
