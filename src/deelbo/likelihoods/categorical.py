"""One class for each example: softmax and cross-entropy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from deelbo.likelihoods.base import LIKELIHOODS, Likelihood, PredictedRow, TrainingScore

IGNORED = -100  # a target that does not count, as in PyTorch's cross-entropy


@LIKELIHOODS.register("categorical", "one class for each example")
class Categorical(Likelihood):
    r"""p(y | logits) = softmax(logits)_y, whose negative logarithm is the cross-entropy.

    With class_weights="balanced", log p of an example of class c counts w_c = N / (C n_c) times, where n_c of the N
    examples are of class c; so sum_i w_{y_i} = N.

    Args:
        class_weights: "none" or "balanced".

    Example:
        >>> import torch
        >>> from deelbo.likelihoods import Categorical
        >>> logits, classes = torch.zeros(2, 4), torch.tensor([0, 3])
        >>> round(Categorical()(logits, classes).item(), 4)  # log 4
        1.3863
    """

    name, task, has_sets = "categorical", "classification", True
    weights: Tensor | None

    def __init__(self, class_weights: str = "none") -> None:
        super().__init__(class_weights)
        self.register_buffer("weights", None, persistent=False)

    def fit(self, targets: Tensor, num_outputs: int) -> None:
        """Compute the class weights from the classes of all training examples."""
        if self.class_weights == "balanced":
            counts = torch.bincount(targets.long().cpu(), minlength=num_outputs).double()
            present = int((counts > 0).sum())
            self.weights = (len(targets) / (present * counts.clamp(min=1))).float()

    def check(self, output: Tensor, target: Tensor) -> None:
        """Raise an error unless targets are whole numbers and outputs are logits."""
        if target.shape != (len(target),) or target.is_floating_point() or target.is_complex():
            raise ValueError(f"a label must be one whole number, not {target[0].tolist()}")
        if output.ndim != 2 or len(output) != len(target):
            raise ValueError(f"the network must give logits, [examples, classes], not {list(output.shape)}")

    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        """Return w_y log softmax(output_i)[target_i].

        Args:
            output: Logits, [N, C].
            target: Class indices, [N].
        """
        return -self._cross_entropy(output, target, "none")

    def log_likelihood(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the sum of w_y log softmax(output_i)[target_i] over the batch."""
        return -self._cross_entropy(output, target, "sum")

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the mean cross-entropy over the examples whose target is not -100 (ignored)."""
        if self.weights is None:
            return self._cross_entropy(output, target, "mean")
        return self._cross_entropy(output, target, "sum") / len(target)  # PyTorch would divide by the weights' sum

    def _cross_entropy(self, output: Tensor, target: Tensor, reduction: str) -> Tensor:
        weights = None if self.weights is None else self.weights.to(output)
        try:
            return F.cross_entropy(output, target, weights, reduction=reduction)
        except IndexError as error:
            wrong = target.min() if target.min() < 0 else target.max()
            hint = "; targets of a regression must be floating-point numbers" if output.shape[1] == 1 else ""
            raise ValueError(
                f"a label is {int(wrong)}, but the network gives {output.shape[1]} logits{hint}"
            ) from error

    def linear_targets(self, target: Tensor, num_outputs: int) -> Tensor:
        """Return 1 - 1/C for the right class and -1/C for the others."""
        self._cross_entropy(torch.zeros(len(target), num_outputs), target, "none")  # refuses other targets
        return F.one_hot(target, num_outputs).double() - 1 / num_outputs

    def training_score(self, output: Tensor, target: Tensor) -> TrainingScore:
        """Return how many examples are classified correctly."""
        return TrainingScore("accuracy", (output.argmax(1) == target).sum())

    def averageable(self, output: Tensor) -> Tensor:
        """Return the logarithms of class probabilities, [N, C]."""
        return output.double().log_softmax(1)

    def shown(self, prediction: Tensor) -> Tensor:
        """Return class probabilities, [N, C]."""
        return prediction.exp()

    def predictive_log_prob(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Return log p(class) of every example."""
        return prediction.gather(1, target[:, None].to(prediction.device))[:, 0]

    def tempered(self, prediction: Tensor, temperature: float) -> Tensor:
        """Return probabilities in proportion to p^(1 / temperature)."""
        return prediction if temperature == 1 else (prediction / temperature).log_softmax(1)

    def scores(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Return 1 - p(class), [N, 1]."""
        return 1 - prediction.gather(1, target[:, None])

    def sets(self, prediction: Tensor, limits: Sequence[float]) -> Tensor:
        """Return the classes with 1 - p within the limit, and always the most probable one."""
        return (1 - prediction <= limits[0]).scatter(1, prediction.argmax(1, keepdim=True), True)

    def describe_sets(self, sets: Tensor, prediction: Tensor, names: Sequence[str]) -> list[PredictedRow]:
        """Return the classes of each set, the most probable first."""
        rows = []
        for chosen, order in zip(sets.tolist(), prediction.argsort(1, descending=True).tolist(), strict=True):
            inside = [names[i] for i in order if chosen[i]]
            rows.append(PredictedRow({"set": "|".join(inside)}, {"set": inside}, ("{" + ", ".join(inside) + "}",)))
        return rows

    def describe(self, prediction: Tensor, names: Sequence[str], top: int = 1) -> list[PredictedRow]:
        """Return the most probable classes with their probabilities."""
        rows = []
        for row in prediction:
            columns: dict[str, Any] = {}
            best = row.topk(min(top, len(names)))
            for rank, (p, i) in enumerate(zip(best.values.tolist(), best.indices.tolist(), strict=True), 1):
                suffix = "" if rank == 1 else f"_{rank}"
                columns |= {f"predicted{suffix}": names[i], f"probability{suffix}": round(p, 6)}
            shown = tuple(value if isinstance(value, str) else f"{value:.4f}" for value in columns.values())
            rows.append(PredictedRow(columns, {"probabilities": dict(zip(names, row.tolist(), strict=True))}, shown))
        return rows

    def score(self, prediction: Tensor, target: Tensor) -> float:
        """Return the mean over classes of the share of a class's examples that are right (the paper's accuracy)."""
        right = (prediction.argmax(1) == target).double()
        counts = torch.bincount(target)
        return float((torch.bincount(target, right) / counts)[counts > 0].mean())
