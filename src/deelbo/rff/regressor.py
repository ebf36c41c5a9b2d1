"""Approximate Gaussian-process regression whose time is linear in N, as a scikit-learn estimator."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from sklearn.base import RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, check_random_state, validate_data
from torch import Tensor

from deelbo.rff.estimator import DTYPES, RFFEstimator
from deelbo.rff.evidence import Dual, Primal, isotropic_objective, log_marginal_likelihood
from deelbo.rff.features import fourier_features
from deelbo.rff.problem import CHUNK, Problem, split
from deelbo.rff.search import maximise
from deelbo.rff.stochastic import DRAWS, ascend

NOISE_FLOOR = 1e-3  # lower bound of the noise, in units of the targets' standard deviation
PROBLEMS = {
    "noise": f"the noise is at its lower bound ({NOISE_FLOOR:g} of the targets' spread): the features interpolate the "
    "data, and the predicted uncertainty cannot be trusted",
    "small": "the outputscale is at its lower bound: the inputs do not explain the targets",
    "large": "the outputscale is at its upper bound: the targets look like a trend rather than a stationary function",
    "memorises": "the lengthscale is as short as the median distance to the third nearest neighbour: this objective "
    'prefers to memorise the rows; try objective="lml"',
    "unfinished": "the search stopped after max_iter iterations, before it reached a maximum: increase max_iter",
    "singular": "the kernel matrix was singular in single precision at some hyperparameters: "
    'dtype="float64" may find better ones',
}


class RFFRegressor(RegressorMixin, RFFEstimator):
    """Bayesian regression on random Fourier features: lengthscale, outputscale and noise are learned.

    Args:
        num_features: R, the number of random features; more of them approximate a Gaussian process with an RBF kernel
            more closely.
        objective: Objective that chooses the hyperparameters: "lml" (log marginal likelihood, with the exact posterior;
            default), "de-elbo" or "elbo" (with an isotropic posterior). The last two are here to study the objective:
            on tabular data the exact posterior predicts far better and costs no more.
        kappa: Weight of the log-likelihood in "de-elbo"; None for max(1, R/N), which is D/N with one output. Above that
            the objective has no maximum once the features can interpolate the data: it grows without bound as the noise
            goes to zero.
        ard: Whether each input has its own lengthscale (automatic relevance determination).
        normalize_y: Whether to standardise the targets for the fit.
        solver: "l-bfgs" on closed forms, or "adam", the paper's stochastic algorithm for the isotropic objectives,
            which is hundreds of times slower and meant for comparison.
        max_iter: Largest number of L-BFGS iterations from each start; a `ConvergenceWarning` says if they were too few.
        steps: Number of Adam steps at each of its four learning rates.
        draws: Number of draws of the weights in a step of Adam: 5, as in the authors' demo, or 1, as the paper says.
        random_state: Seed or NumPy generator for the random features A and b and for the draws in training.
        dtype: Precision of the features: "float64" or "float32"; sums over rows and factorisations are always float64.
        device: PyTorch device, such as "cpu" or "cuda".
        verbose: 1 to show a progress bar, 0 for no output.

    Attributes:
        lengthscale_: Learned lengthscale, in units of the inputs; a number, or an array with `ard`.
        outputscale_: Learned prior standard deviation of the function, in units of the targets.
        noise_: Learned standard deviation of the noise, in units of the targets. With several outputs, `noise_` and
            `outputscale_` are arrays proportional to the targets' standard deviations, because all outputs share
            lengthscales and signal-to-noise ratio; for very different noise use scikit-learn's `MultiOutputRegressor`.
        scale_: Standard deviation of the isotropic posterior; None for "lml".
        objective_: Largest value of the objective, for the standardised targets if `normalize_y`.
        n_iter_: Number of evaluations of the objective; with "adam", the number of steps.
        n_features_in_: Number of inputs (columns of X) seen in `fit`.

    Example:
        >>> import numpy as np
        >>> from deelbo.rff import RFFRegressor
        >>> X = np.linspace(0, 6, 60)[:, None]
        >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).standard_normal(60)
        >>> model = RFFRegressor(num_features=200, random_state=0).fit(X, y)
        >>> mean, std = model.predict([[1.5], [20.0]], return_std=True)
        >>> print(f"{mean[0]:.1f}")  # sin(1.5) = 0.997
        1.0
        >>> bool(std[1] > std[0])  # less certain far from the data
        True
        >>> print(f"{model.noise_:.1f}")  # learned
        0.1
    """

    scale_: float | None
    outputscale_: Any
    noise_: Any
    _A: Tensor
    _factor: Tensor | None
    _training: Tensor | None

    def __init__(
        self,
        num_features: int = 2048,
        *,
        objective: str = "lml",
        kappa: float | None = None,
        ard: bool = False,
        normalize_y: bool = True,
        solver: str = "l-bfgs",
        max_iter: int = 100,
        steps: int = 10_000,
        draws: int = DRAWS,
        random_state: Any = None,
        dtype: str = "float64",
        device: str = "cpu",
        verbose: int = 0,
    ) -> None:
        self.num_features = num_features
        self.objective = objective
        self.kappa = kappa
        self.ard = ard
        self.normalize_y = normalize_y
        self.solver = solver
        self.max_iter = max_iter
        self.steps = steps
        self.draws = draws
        self.random_state = random_state
        self.dtype = dtype
        self.device = device
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags, which say that several targets are allowed."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any) -> RFFRegressor:
        """Learn the hyperparameters and the posterior.

        Args:
            X: Inputs, [N, features].
            y: Targets, [N] or [N, outputs].

        Returns:
            The fitted regressor itself.

        Raises:
            ValueError: If a parameter is out of range, the data are invalid, or no hyperparameters give a finite
                objective.
            MemoryError: If so many features do not fit into memory.
        """
        self._check_parameters(
            ("num_features", "max_iter", "steps", "draws"),
            objective=("lml", "de-elbo", "elbo"),
            solver=("l-bfgs", "adam"),
        )
        if self.solver == "adam" and self.objective == "lml":
            raise ValueError('solver="adam" is for the isotropic objectives, "de-elbo" and "elbo", not for "lml"')
        with self._all_or_nothing():
            return self._fit(X, y)

    def _fit(self, X: Any, y: Any) -> RFFRegressor:
        X, y = validate_data(self, X, y, multi_output=True, y_numeric=True, dtype="float64", ensure_min_samples=2)
        small, large = sorted((len(X), self.num_features))
        features = 3 * small * large if small == len(X) else 12 * CHUNK
        self._check_memory(8 * 8 * small**2 + DTYPES[self.dtype].itemsize * features)  # sums are float64
        self._one_output = y.ndim == 1
        targets = torch.tensor(y.astype("float64")).reshape(len(y), -1)
        shift = targets.mean(0)
        size = (targets - shift).abs().amax(0)  # squares of huge or tiny targets would overflow or vanish
        spread = size * ((targets - shift) / torch.where(size > 0, size, 1.0)).std(0, correction=0)
        spread = torch.where(spread > 1e-12 * shift.abs(), spread, torch.ones_like(spread))  # constant but for rounding
        if not self.normalize_y:
            shift, spread = torch.zeros_like(shift), torch.ones_like(spread)
        self._shift, self._spread = shift, spread
        targets = (targets - shift) / spread
        if not bool(targets.square().sum().isfinite()):
            raise ValueError(
                "y has values that are too large" + (": rescale them" if self.normalize_y else "; try normalize_y=True")
            )
        floor = NOISE_FLOOR * (float(targets.std(correction=0)) or 1.0)
        if hasattr(self, "_A"):
            del self._A  # left by an earlier fit, perhaps in another precision
        self._scale_inputs(X, self.ard)
        self._A, self._b, seed = self._draw_features(X.shape[1])
        kappa = self._emphasis(self.num_features, len(X))  # D / (N T) for D = R T weights and N T target values
        x = self._inputs(X)
        problem = Problem(x, targets.to(x), self._A, self._b, self.objective, kappa)
        if self.solver == "adam":
            self._fit_adam(problem, floor, seed)
        else:
            with self._progress() as progress:
                optimum = maximise(problem, self.ard, floor, max_iter=self.max_iter, seed=seed, progress=progress)
            self._logs, self.objective_, self.n_iter_ = optimum.logs, optimum.value, optimum.evaluations
            self._keep_posterior(problem)
            for name in optimum.problems:
                warnings.warn(PROBLEMS[name], ConvergenceWarning, stacklevel=3)
        self._describe()
        return self

    def _fit_adam(self, problem: Problem, floor: float, seed: int) -> None:
        with self._progress(4 * self.steps) as progress:
            ascent = ascend(problem, self.ard, floor, steps=self.steps, seed=seed, progress=progress, draws=self.draws)
        self._logs, self._mean, self.objective_ = ascent.logs, ascent.mean, ascent.value
        self.scale_, self._factor, self.n_iter_ = ascent.scale, None, self.steps

    # ---- the posterior at the maximum ----

    @torch.no_grad()
    def _keep_posterior(self, problem: Problem) -> None:
        noise = split(self._logs)[2]
        stats = problem.statistics(self._logs)
        if self.objective == "lml":
            _, mean = log_marginal_likelihood(stats, noise**2, problem.sizes)
            self.scale_, self._factor = None, _factor(stats, noise**2)
            self._training = problem.x if isinstance(stats, Dual) else None
        else:
            _, mean, variance = isotropic_objective(stats, noise**2, problem.kappa, problem.sizes)
            self.scale_, self._factor = float(variance.sqrt()), None
        self._mean = mean.double()

    def _describe(self) -> None:
        lengthscale, outputscale, noise = split(self._logs)
        unit = self._spread.numpy()
        self.lengthscale_ = lengthscale.numpy() * self._unit if self.ard else float(lengthscale) * self._unit
        self.outputscale_, self.noise_ = float(outputscale) * unit, float(noise) * unit
        if self._one_output:
            self.outputscale_, self.noise_ = float(self.outputscale_[0]), float(self.noise_[0])

    def _features(self, x: Tensor) -> Tensor:
        """Return the features Phi of scaled inputs, in float64."""
        lengthscale, outputscale, _ = split(self._logs.to(self._A))
        return fourier_features(x, self._A, self._b, lengthscale, outputscale).double()

    def _parts(self, X: Any) -> tuple[Tensor, ...]:
        check_is_fitted(self)
        x = self._inputs(validate_data(self, X, dtype="float64", reset=False))
        return x.split(max(256, CHUNK // self._A.shape[1]))

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False, noise: bool = True) -> Any:
        """Return the predictive mean and, if asked for, the standard deviation or the covariance.

        Args:
            X: Inputs, [M, features].
            return_std: Whether to return the standard deviation as well, in the shape of the mean.
            return_cov: Whether to return the covariance between all rows as well, [M, M] or [M, M, outputs].
            noise: Whether standard deviation and covariance are those of new targets, with the noise, or those of the
                function without it.

        Returns:
            The mean, [M] or [M, outputs]; or a pair of the mean and the standard deviation or covariance.

        Raises:
            ValueError: If both standard deviation and covariance are asked for.
        """
        if return_std and return_cov:
            raise ValueError("return_std and return_cov cannot both be True: choose one")
        phis = [self._features(rows) for rows in self._parts(X)] if return_cov else map(self._features, self._parts(X))
        training = self._training_features() if return_std or return_cov else None
        added = float(split(self._logs)[2] ** 2) if noise else 0.0
        means, variances = [], []
        for phi in phis:
            means.append((phi @ self._mean).cpu() * self._spread + self._shift)
            if return_std:
                minus, plus = self._roots(phi, training)
                variances.append((plus.square().sum(1) - minus.square().sum(0)).clamp(min=0).cpu() + added)
        mean = torch.cat(means).numpy()
        mean = mean[:, 0] if self._one_output else mean
        if return_cov:
            minus, plus = self._roots(torch.cat(list(phis)), training)
            covariance = (plus @ plus.T - minus.T @ minus).cpu() + added * torch.eye(len(plus), dtype=torch.float64)
            cov = (covariance[:, :, None] * self._spread**2).numpy()
            return mean, cov[:, :, 0] if self._one_output else cov
        if return_std:
            std = (torch.cat(variances).sqrt()[:, None] * self._spread).numpy()
            return mean, std[:, 0] if self._one_output else std
        return mean

    def _training_features(self) -> Tensor | None:
        return None if self._factor is None or self._training is None else self._features(self._training)

    def _roots(self, phi: Tensor, training: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return B and C such that the function values at some rows have the posterior covariance C C^T - B^T B."""
        nothing = phi.new_zeros(0, len(phi))
        if self._factor is None:
            return nothing, (self.scale_ or 0.0) * phi
        if training is None:
            return nothing, torch.linalg.solve_triangular(self._factor, phi.T, upper=False).T
        # I - Phi^T (Phi Phi^T + s2 I)^-1 Phi, by the Woodbury identity
        return torch.linalg.solve_triangular(self._factor, training @ phi.T, upper=False), phi

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0, noise: bool = True) -> Any:
        """Draw targets, or functions, from the posterior.

        Args:
            X: Inputs, [M, features].
            n_samples: Number of draws.
            random_state: Seed or NumPy generator for the draws.
            noise: Whether to add noise to the functions, as new targets have it.

        Returns:
            The draws, [M, n_samples] or [M, outputs, n_samples].
        """
        parts = self._parts(X)
        random = check_random_state(random_state)
        weights = self._draw_weights(n_samples, random)
        functions = torch.cat([torch.einsum("mr,rts->mts", self._features(rows), weights).cpu() for rows in parts])
        if noise:
            functions += split(self._logs)[2] * torch.from_numpy(random.standard_normal(functions.shape))
        draws = (functions * self._spread[:, None] + self._shift[:, None]).numpy()
        return draws[:, 0] if self._one_output else draws

    def _draw_weights(self, n_samples: int, random: Any) -> Tensor:
        """Return draws of the weights v from the posterior, [R, T, n_samples]."""
        size, outputs = self._mean.shape

        def normal(*shape: int) -> Tensor:
            return torch.from_numpy(random.standard_normal(shape)).to(self._mean)

        draws = normal(size, outputs * n_samples)
        if self._factor is None:
            draws = (self.scale_ or 0.0) * draws
        elif self._training is None:
            draws = torch.linalg.solve_triangular(self._factor.T, draws, upper=True)
        else:
            # Matheron's rule: a draw of the prior, moved by what it gets wrong about (noisy) observations of zero.
            phi = self._features(self._training)
            observed = phi @ draws + split(self._logs)[2] * normal(len(phi), outputs * n_samples)
            draws = draws - phi.T @ torch.cholesky_solve(observed, self._factor)
        return self._mean[:, :, None] + draws.reshape(size, outputs, n_samples)


def _factor(stats: Primal | Dual, noise: Tensor) -> Tensor:
    """Return the Cholesky factor of the posterior precision (primal) or of the covariance of the targets (dual)."""
    dual = isinstance(stats, Dual)
    matrix = stats.kernel if isinstance(stats, Dual) else stats.gram / noise
    identity = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
    return torch.linalg.cholesky(matrix + identity * (noise if dual else 1.0))
