"""Any number of labels for each example: an independent yes or no for each label."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from deelbo.likelihoods.base import LIKELIHOODS, Likelihood, PredictedRow, TrainingScore


@LIKELIHOODS.register("bernoulli", "any number of labels for each example")
class Bernoulli(Likelihood):
    r"""p(y | logits) = prod_l sigmoid(logits_l)^{y_l} (1 - sigmoid(logits_l))^{1 - y_l} over L labels.

    With class_weights="balanced", an example that has label l counts N / (2 n_l) times in this label's factor, and one
    that lacks it N / (2 (N - n_l)) times, where n_l of the N examples have it; so the weights of each label add to N.

    Args:
        class_weights: "none" or "balanced".

    Example:
        >>> import torch
        >>> from deelbo.likelihoods import Bernoulli
        >>> logits, labels = torch.zeros(2, 3), torch.tensor([[1, 0, 0], [1, 1, 0]])
        >>> round(Bernoulli()(logits, labels).item(), 4)  # 3 log 2
        2.0794
    """

    name, task = "bernoulli", "multilabel"
    weights: Tensor | None

    def __init__(self, class_weights: str = "none") -> None:
        super().__init__(class_weights)
        self.register_buffer(
            "weights", None, persistent=False
        )  # [2, L]: weights of examples without and with the label

    @property
    def needs_targets(self) -> bool:
        """Always: they are checked."""
        return True

    def fit(self, targets: Tensor, num_outputs: int) -> None:
        """Check the labels of all training examples, and compute the weights of each label from them.

        Raises:
            ValueError: If one is neither 0 nor 1.
        """
        _check_labels(targets)
        if self.class_weights == "balanced":
            number, having = len(targets), targets.double().sum(0).cpu()
            counts = torch.stack([number - having, having])
            weights = number / (2 * counts.clamp(min=1))
            both = (counts > 0).all(0)  # a label that all or no examples have cannot be balanced
            self.weights = torch.where(both, weights, torch.ones_like(weights)).float()

    def check(self, output: Tensor, target: Tensor) -> None:
        """Raise an error unless targets are rows of 0 and 1, and there is an output for each label."""
        _check_labels(target)
        if output.shape != target.shape:
            raise ValueError(
                f"the network must give {list(target.shape)}, a logit for each label, not {list(output.shape)}"
            )

    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the sum over labels of the (weighted) log p(y_il | output_il), for every example i.

        Args:
            output: Logits, [N, L].
            target: 0 or 1 for each label, [N, L].
        """
        loss = F.binary_cross_entropy_with_logits(output, target.to(output.dtype), reduction="none")
        if self.weights is not None:
            absent, present = self.weights.to(output)
            loss = loss * torch.where(target > 0, present, absent)
        return -loss.sum(1)

    def decisions(self, output: Tensor) -> int:
        """Return the number of labels."""
        return output.shape[1]

    def linear_targets(self, target: Tensor, num_outputs: int) -> Tensor:
        """Return 1/2 for a label that an example has, and -1/2 for one that it has not."""
        return target.double() - 0.5

    def training_score(self, output: Tensor, target: Tensor) -> TrainingScore:
        """Return the sum over examples of the fraction of labels that are right at the threshold 0.5."""
        return TrainingScore("accuracy", ((output > 0) == (target > 0)).double().mean(1).sum())

    def averageable(self, output: Tensor) -> Tensor:
        """Return log(1 - p) and log p of each label, [N, L, 2]."""
        logits = output.double()
        return torch.stack([F.logsigmoid(-logits), F.logsigmoid(logits)], -1)

    def prediction(self, average: Tensor) -> Tensor:
        """Return log(p / (1 - p)) of each label, [N, L]."""
        return average[..., 1] - average[..., 0]

    def shown(self, prediction: Tensor) -> Tensor:
        """Return the probability of each label, [N, L]."""
        return prediction.sigmoid()

    def predictive_log_prob(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Return log p(labels) of every example, summed over the labels."""
        signs = torch.where(target.to(prediction.device) > 0, 1.0, -1.0).double()
        return F.logsigmoid(signs * prediction).sum(1)

    def tempered(self, prediction: Tensor, temperature: float) -> Tensor:
        """Return the probabilities whose logits are divided by the temperature."""
        return prediction if temperature == 1 else prediction / temperature

    def describe(self, prediction: Tensor, names: Sequence[str], top: int = 1) -> list[PredictedRow]:
        """Return the labels with a probability above 0.5, and the probability of each label."""
        rows = []
        for row in prediction.tolist():
            probabilities = dict(zip(names, row, strict=True))
            chosen = {name: p for name, p in probabilities.items() if p > 0.5}
            shown = tuple(f"{name} {p:.4f}" for name, p in chosen.items()) or ("(no label)",)
            columns = {"predicted": "|".join(chosen)}
            columns |= {f"probability_{name}": round(p, 6) for name, p in probabilities.items()}
            rows.append(PredictedRow(columns, {"probabilities": probabilities}, shown))
        return rows

    def score(self, prediction: Tensor, target: Tensor) -> float:
        """Return the fraction of labels that are right at the threshold 0.5."""
        return float(((prediction > 0.5) == (target > 0)).double().mean())


def _check_labels(target: Tensor) -> None:
    if target.ndim != 2:
        raise ValueError(f"labels must be a row of 0 and 1 for each example, not {target[0].tolist()}")
    wrong = ((target != 0) & (target != 1)).any(1).nonzero().flatten().tolist()
    if wrong:
        raise ValueError(f"labels must be a row of 0 and 1 for each example, not {target[wrong[0]].tolist()}")
