"""The base class of methods, which the training loop calls, and their registry; the methods are in `methods/`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from torch import Tensor, nn

from deelbo._registry import Registry
from deelbo.likelihoods import Likelihood
from deelbo.posteriors import GaussianPosterior
from deelbo.priors import GaussianPrior
from deelbo.training.batches import Inputs

if TYPE_CHECKING:
    from deelbo.training.settings import Settings

METHODS: Registry[type[Method]] = Registry("method", "deelbo.methods")


class TrainingView(Protocol):
    """Training examples without augmentation, as a method sees them: at the current weights, in eval mode."""

    def log_likelihood(self) -> Tensor:
        """Return the log-likelihood of the training set, with batch-normalisation statistics of the current weights."""

    def batches(self) -> Iterator[tuple[Inputs, Tensor]]:
        """Yield batches of inputs and targets."""

    @property
    def share(self) -> float:
        """Share of the training set that the batches contain: divide sums over the batches by it."""


@dataclass(frozen=True)
class Quantity:
    """A learned number that the report shows.

    Args:
        column: Name of the column in the history that holds the number.
        symbol: Name of the number in charts.
        title: Name of the number on its card in the report.
        large: Whether it is shown as a large number with separators instead of in scientific notation.
        charted: Whether the chart of learned values shows it.
    """

    column: str
    symbol: str
    title: str
    large: bool = False
    charted: bool = True


@dataclass(frozen=True)
class MethodInputs:
    """All that a method is made from.

    Args:
        network: The network at its initial state; bare, or wrapped for data parallelism.
        prior: Prior over the network's trainable parameters.
        likelihood: Likelihood of the targets.
        num_data: N, the number of training examples.
        num_outputs: Number of outputs that the network gives for an example.
        settings: Settings of the run.
    """

    network: nn.Module
    prior: GaussianPrior
    likelihood: Likelihood
    num_data: int
    num_outputs: int
    settings: Settings


class Method(ABC):
    """A way to regularise the training of one network at one learning rate, made anew for each candidate.

    A subclass defines what the command line, the progress bar and the report show of it, so that none of them needs to
    know a method by name:

    - `name`: Name of the method in the registry.
    - `own_settings`: Settings that other methods refuse, unless they list them too.
    - `needed_settings`: Settings that the user must give.
    - `penalty`: The column of the history with the regularisation's part of the loss.
    - `quantities`: Learned numbers beside the prior variances.
    - `variances_are_learned`: When the prior variances are learned, as the end of a sentence; "" if they stay fixed.
    - `lr_search`: How its learning rate is chosen unless the user says otherwise: "race" or "grid".
    - `draws_weights`: Whether it has a posterior, from which training steps draw weights.
    - `trains`: Whether it takes training steps; if not, the network with the classifier's start is its result.
    - `pairs`: Whether it trains by pairs of examples, where that is better, unless the user says otherwise.
    """

    name: ClassVar[str]
    own_settings: ClassVar[tuple[str, ...]] = ()
    needed_settings: ClassVar[tuple[str, ...]] = ()
    penalty: ClassVar[Quantity]
    quantities: ClassVar[tuple[Quantity, ...]] = ()
    variances_are_learned: ClassVar[str] = ""
    lr_search: ClassVar[str] = "race"
    draws_weights: ClassVar[bool] = False
    trains: ClassVar[bool] = True
    pairs: ClassVar[bool] = False

    prior: GaussianPrior

    @classmethod
    @abstractmethod
    def make(cls, inputs: MethodInputs) -> Method:
        """Return the method for one candidate."""

    @property
    @abstractmethod
    def objective_scale(self) -> float:
        """Number by which the objective is divided to compare with a mean loss: kappa N or N."""

    @property
    def posterior(self) -> GaussianPosterior | None:
        """The posterior over the weights; None for a point estimate."""
        return None

    @abstractmethod
    def parameters(self) -> Iterator[nn.Parameter]:
        """Return all that the optimizer moves, except for the likelihood's own parameters."""

    @abstractmethod
    def add_gradients(self, add_loss_gradient: Callable[[], None], unscale: Callable[[], None]) -> None:
        """Compute the gradient of one step, and leave it in the parameters.

        Args:
            add_loss_gradient: Function that adds the gradient of the batch's mean negative log-likelihood, divided by
                the settings' number of draws; to be called once for each draw.
            unscale: Function that undoes the scaling of the loss's gradient (float16); to be called after
                `add_loss_gradient` and before the method adds gradients of its own.
        """

    def end_epoch(self, examples: TrainingView) -> None:
        """Do what the method does at the end of an epoch: nothing, unless a subclass overrides it.

        Args:
            examples: All training examples.
        """

    @abstractmethod
    def objective(self, examples: TrainingView, samples: int) -> float:
        """Return the training objective, larger being better, at the current parameters in eval mode.

        Args:
            examples: All training examples, or a subset of them.
            samples: Number of draws of the weights, for a method with a posterior.
        """

    def optimistic_objective(self, examples: TrainingView, samples: int) -> float:
        """Return the objective at the current weights with the best values of the method's other parameters.

        For comparisons early in training. May change those parameters: the caller restores the state from before.
        Equal to the objective, unless a subclass has such parameters.

        Args:
            examples: All training examples, or a subset of them.
            samples: Number of draws of the weights, for a method with a posterior.
        """
        return self.objective(examples, samples)

    @abstractmethod
    def learned(self) -> dict[str, float]:
        """Return the numbers that the method has learned so far, by name, for the history."""

    def warnings(self) -> list[str]:
        """Return warnings for the user before training: none, unless a subclass overrides it."""
        return []

    def state_dict(self) -> dict[str, Tensor]:
        """Return the state that is not in the network's own: nothing, unless a subclass overrides it."""
        return {}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Continue from a state that `state_dict` returned."""


def variances_by_column(prior: GaussianPrior) -> dict[str, float]:
    """Return the prior variances under the names of their columns in the history."""
    return {f"variance_{name}": value for name, value in prior.variances.items()}


def variance_state(prior: GaussianPrior) -> dict[str, Tensor]:
    """Return the prior variances as a part of a method's state."""
    return {f"variance.{name}": group.get_extra_state() for name, group in prior.named_groups().items()}


def load_variance_state(prior: GaussianPrior, state: dict[str, Tensor]) -> None:
    """Set the prior variances from a method's state."""
    for name, group in prior.named_groups().items():
        group.set_extra_state(state[f"variance.{name}"])
