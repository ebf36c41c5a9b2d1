"""Classification on random Fourier features that learn their lengthscale, as a scikit-learn estimator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy
import torch
import torch.nn.functional as F
from sklearn.base import ClassifierMixin
from sklearn.preprocessing import LabelEncoder
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from deelbo.rff.estimator import DTYPES, RFFEstimator
from deelbo.rff.features import fourier_features
from deelbo.rff.problem import CHUNK
from deelbo.rff.search import labelled_lengthscales, median_distance

PREDICTIVE_SAMPLES = 256  # draws of the logits behind a prediction, the same for every row
START_SCALE = 0.1  # initial standard deviation of q


class RFFClassifier(ClassifierMixin, RFFEstimator):
    """Bayesian softmax regression on random Fourier features: lengthscale and outputscale are learned.

    The weights V [R, C] have the prior N(0, I) and the posterior N(mean, scale^2 I). Under it, the logits of an example
    are independent Gaussians with variance scale^2 |phi|^2, so C random numbers per example are drawn instead of R C
    (local reparameterisation). Adam on minibatches maximises kappa E_q log p(y | V) - KL(q || p).

    With kappa > 1 each label counts more than once, and this objective rises as the lengthscale shrinks, until every
    row is memorised. So the lengthscale has a lower bound: the one that maximises the marginal likelihood of regression
    on the same features with one-hot labels as targets (a closed form). Training usually ends at this bound.

    Args:
        num_features: R, the number of random features.
        objective: Objective to maximise: "de-elbo" (default) or "elbo".
        kappa: Weight of the log-likelihood in "de-elbo"; None for max(1, R C / N).
        ard: Whether each input has its own lengthscale (automatic relevance determination).
        min_lengthscale: Lower bound of the lengthscale, in units of the inputs; None for the bound described above
            (if kappa > 1), 0 for no bound.
        max_iter: Number of Adam steps.
        learning_rate: Initial learning rate of Adam, which follows a cosine schedule to zero; or several, such as the
            paper's (0.1, 0.01, 0.001, 0.0001), of which the one with the largest objective is kept.
        batch_size: Number of rows in a minibatch.
        random_state: Seed or NumPy generator for the random features A and b and for the draws in training.
        dtype: Precision of the computations: "float64" or "float32".
        device: PyTorch device, such as "cpu" or "cuda".
        verbose: 1 to show a progress bar, 0 for no output.

    Attributes:
        classes_: Class labels, in the order of the columns of `predict_proba`.
        lengthscale_: Learned lengthscale, in units of the inputs; a number, or an array with `ard`.
        outputscale_: Learned prior standard deviation of each logit.
        scale_: Learned standard deviation of the posterior of the weights.
        learning_rate_: Learning rate that was used, or chosen.
        objective_: Monte Carlo estimate of the objective on all rows after training.
        n_iter_: Number of Adam steps that were made.
        n_features_in_: Number of inputs (columns of X) seen in `fit`.

    Example:
        >>> from sklearn.datasets import make_moons
        >>> from deelbo.rff import RFFClassifier
        >>> X, y = make_moons(100, noise=0.1, random_state=0)
        >>> model = RFFClassifier(num_features=64, max_iter=50, random_state=0).fit(X, y)
        >>> model.predict([[0.0, 1.0], [1.0, -0.5]])
        array([0, 1])
        >>> model.predict_proba([[0.0, 1.0]]).shape  # [rows, classes]
        (1, 2)
        >>> model.score(X, y) > 0.9
        True
    """

    _A: Tensor
    _parameters: dict[str, Tensor]

    def __init__(
        self,
        num_features: int = 1024,
        *,
        objective: str = "de-elbo",
        kappa: float | None = None,
        ard: bool = False,
        min_lengthscale: float | None = None,
        max_iter: int = 500,
        learning_rate: float | Sequence[float] = 0.1,
        batch_size: int = 1024,
        random_state: Any = None,
        dtype: str = "float32",
        device: str = "cpu",
        verbose: int = 0,
    ) -> None:
        self.num_features = num_features
        self.objective = objective
        self.kappa = kappa
        self.ard = ard
        self.min_lengthscale = min_lengthscale
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.random_state = random_state
        self.dtype = dtype
        self.device = device
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> RFFClassifier:
        """Learn the hyperparameters and the posterior of the weights.

        Args:
            X: Inputs, [N, features].
            y: Class labels, [N].

        Returns:
            The fitted classifier itself.

        Raises:
            ValueError: If a parameter is out of range, the data are invalid, or training diverges.
            MemoryError: If so many features do not fit into memory.
        """
        self._check_parameters(("num_features", "max_iter", "batch_size"), objective=("de-elbo", "elbo"))
        for rate in self._rates:
            if not isinstance(rate, Real) or not 0 < float(rate) < math.inf:
                raise ValueError(f"learning_rate={self.learning_rate!r} must be positive")
        self._check_positive("min_lengthscale", None, 0)
        with self._all_or_nothing():
            return self._fit(X, y)

    def _fit(self, X: Any, y: Any) -> RFFClassifier:
        X, y = validate_data(self, X, y, dtype="float64", ensure_min_samples=2)
        check_classification_targets(y)
        encoder = LabelEncoder().fit(y)
        self.classes_ = encoder.classes_
        if len(self.classes_) < 2:
            raise ValueError(f"a classifier needs at least two classes, and y has one class: {self.classes_[0]}")
        numbers = self.num_features * (4 * min(self.batch_size, len(X)) + 4 * len(self.classes_))
        self._check_memory(numbers * DTYPES[self.dtype].itemsize)
        if hasattr(self, "_A"):
            del self._A  # left by an earlier fit, perhaps in another precision
        self._scale_inputs(X, self.ard)
        self._A, self._b, seed = self._draw_features(X.shape[1])
        x, labels = self._inputs(X), torch.tensor(encoder.transform(y), device=self.device)
        self._kappa = self._emphasis(self.num_features * len(self.classes_), len(x))
        found: dict[float, tuple[float, dict[str, Tensor]]] = {}
        for rate in self._rates:
            generator = torch.Generator(self.device).manual_seed(seed)
            self._start(x, labels, seed)
            self._train(x, labels, generator, rate)
            found[rate] = self._estimate(x, labels, generator), self._parameters
        ended = {rate: value for rate, (value, _) in found.items() if math.isfinite(value)}
        if not ended:
            raise ValueError(
                f"training diverged: learning_rate={self.learning_rate} is too large for these data, try a tenth of it"
            )
        self.learning_rate_ = max(ended, key=lambda rate: ended[rate])
        self.objective_, self._parameters = found[self.learning_rate_]
        lengthscale = self._lengthscale.double().cpu().numpy() * self._unit
        self.lengthscale_ = lengthscale if self.ard else float(lengthscale[0])
        self.outputscale_, self.scale_ = float(self._outputscale), float(self._scale)
        self.n_iter_ = self.max_iter
        return self

    def _start(self, x: Tensor, labels: Tensor, seed: int) -> None:
        inputs = x.shape[1] if self.ard else 1
        if self.min_lengthscale is None:
            usual = self._tensor(labelled_lengthscales(x, labels, self._A, self._b, ard=self.ard, seed=seed))
            self._shortest = usual if self._kappa > 1 else torch.full_like(usual, -math.inf)
            first = usual + 0.5
        else:
            spread = median_distance(x, torch.Generator().manual_seed(seed)) / math.sqrt(2) or 1.0
            self._shortest = self._tensor(self.min_lengthscale / self._unit).log().expand(inputs)
            first = self._shortest.clamp(min=math.log(spread)).clone()
        self._parameters = {
            "mean": self._A.new_zeros(self.num_features, len(self.classes_)),
            "log_lengthscale": first,
            "log_outputscale": self._tensor(0.0),
            "log_scale": self._tensor(math.log(START_SCALE)),
        }

    @property
    def _rates(self) -> tuple[Any, ...]:
        """Candidates for the learning rate, as the user wrote them."""
        rates: Any = self.learning_rate
        return tuple(rates) if numpy.ndim(rates) and len(rates) else (rates,)

    @property
    def _lengthscale(self) -> Tensor:
        return self._parameters["log_lengthscale"].exp()

    @property
    def _outputscale(self) -> Tensor:
        return self._parameters["log_outputscale"].exp()

    @property
    def _scale(self) -> Tensor:
        return self._parameters["log_scale"].exp()

    def _logits(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean [M, C] and standard deviation [M, 1] of the logits under q."""
        phi = fourier_features(x, self._A, self._b, self._lengthscale, self._outputscale)
        return phi @ self._parameters["mean"], self._scale * phi.square().sum(1, keepdim=True).sqrt()

    def _nll(self, x: Tensor, labels: Tensor, samples: int, generator: torch.Generator) -> Tensor:
        """Return -E_q log p(y | V), averaged over the rows and over several draws of their logits."""
        mean, std = self._logits(x)
        noise = torch.randn(samples, *mean.shape, generator=generator, dtype=mean.dtype, device=mean.device)
        return F.cross_entropy((mean + std * noise).flatten(0, 1), labels.repeat(samples))

    def _kl(self) -> Tensor:
        """Return KL(q || p) = KL(N(mean, scale^2 I) || N(0, I))."""
        mean, log_scale = self._parameters["mean"], self._parameters["log_scale"]
        return 0.5 * (mean.square().sum() + mean.numel() * ((2 * log_scale).exp() - 1 - 2 * log_scale))

    def _train(self, x: Tensor, labels: Tensor, generator: torch.Generator, rate: float) -> None:
        parameters = [p.requires_grad_() for p in self._parameters.values()]
        optimizer = torch.optim.Adam(parameters, lr=rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.max_iter)
        size = min(int(self.batch_size), len(x))
        samples = max(1, 1024 // size)
        order = torch.empty(0, dtype=torch.long, device=x.device)
        with self._progress(self.max_iter) as progress:
            for _ in range(self.max_iter):
                if len(order) < size:
                    order = torch.randperm(len(x), generator=generator, device=x.device)
                rows, order = (slice(None), order) if size == len(x) else (order[:size], order[size:])
                optimizer.zero_grad()
                loss = self._nll(x[rows], labels[rows], samples, generator) + self._kl() / (self._kappa * len(x))
                loss.backward()
                optimizer.step()
                with torch.no_grad():
                    self._parameters["log_lengthscale"].clamp_(min=self._shortest)
                schedule.step()
                progress(-loss.item())
        self._parameters = {name: p.detach() for name, p in self._parameters.items()}

    @torch.no_grad()
    def _estimate(self, x: Tensor, labels: Tensor, generator: torch.Generator) -> float:
        """Return an estimate of the objective on all rows, with at least ten draws of the logits of each row."""
        samples = max(10, 2**18 // len(x))
        size = max(16, CHUNK // max(self.num_features, samples * len(self.classes_)))
        parts = zip(x.split(size), labels.split(size), strict=True)
        total = sum(len(rows) * float(self._nll(rows, part, samples, generator)) for rows, part in parts)
        return -self._kappa * total - float(self._kl())

    @torch.no_grad()
    def predict_proba(self, X: Any) -> Any:
        """Return class probabilities, [M, classes], averaged over the posterior.

        Args:
            X: Inputs, [M, features].
        """
        check_is_fitted(self)
        x = self._inputs(validate_data(self, X, dtype="float64", reset=False))
        # Quasi-random and the same for every row, so that a prediction does not depend on the other rows.
        uniform = torch.quasirandom.SobolEngine(len(self.classes_), scramble=True, seed=0).draw(PREDICTIVE_SAMPLES)
        noise = torch.special.ndtri(uniform.double().clamp(1e-9, 1 - 1e-9))
        size = max(16, CHUNK // max(self.num_features, PREDICTIVE_SAMPLES * len(self.classes_)))
        probabilities = []
        for rows in x.split(size):
            mean, std = (part.double().cpu() for part in self._logits(rows))
            probabilities.append((mean[None] + std * noise[:, None]).softmax(-1).mean(0))
        return torch.cat(probabilities).numpy()

    def predict_log_proba(self, X: Any) -> Any:
        """Return the logarithms of the class probabilities, [M, classes].

        Args:
            X: Inputs, [M, features].
        """
        return numpy.log(self.predict_proba(X))

    def predict(self, X: Any) -> Any:
        """Return the most probable label of each row, [M].

        Args:
            X: Inputs, [M, features].
        """
        best = self.predict_proba(X).argmax(1)
        return self.classes_[best]
