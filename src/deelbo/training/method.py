"""What the training loop asks of a method."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from torch import Tensor, nn

from deelbo.training.batches import Inputs


class TrainingView(Protocol):
    """What a method may ask about the plain training examples, at the weights in place and in eval mode."""

    def log_likelihood(self) -> Tensor:
        """Return the sum over the training set; batch-normalisation statistics are those of the weights afterwards."""

    def batches(self) -> Iterator[tuple[Inputs, Tensor]]:
        """Yield inputs and labels."""

    @property
    def share(self) -> float:
        """How much of the training set the batches are: sums over them count 1/share times."""


class Method(Protocol):
    """A way to regularise the training of one network at one learning rate, made anew for each candidate."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """Return all that the optimizer moves."""

    def gradients(self, backward: Callable[[], None], before_prior: Callable[[], None]) -> None:
        """Leave the gradient of one step in the parameters.

        Args:
            backward: Computes the mean negative log-likelihood of the batch and its gradients.
            before_prior: To be called between that and any gradient of the method's own, which is never scaled.
        """

    def end_epoch(self, examples: TrainingView) -> None:
        """Do what the method does once an epoch.

        Args:
            examples: All training examples.
        """

    def value(self, examples: TrainingView, samples: int) -> float:
        """Return the training objective, larger being better, at the current parameters in eval mode.

        Args:
            examples: All training examples, or some.
            samples: Draws of the weights, where the method has some.
        """

    def early_value(self, examples: TrainingView, samples: int) -> float:
        """Return what the objective could be at the current weights, were the method's other parameters at their best.

        For comparisons early in training. May change those parameters: the caller restores the state from before.

        Args:
            examples: See `value`.
            samples: See `value`.
        """

    def learned(self) -> dict[str, float]:
        """Return what the method has learned by now, one number a name, for the history."""

    def state_dict(self) -> dict[str, Tensor]:
        """Return what is not in the network's own state."""

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on from a state."""
