"""Before the first step: what the features of the frozen network are worth, and where its classifier starts.

The features are the inputs of the network's last linear layer. Ridge regression on them says, without a held-out set,
what a classifier on the frozen network would reach; it also decides between two sets of batch-normalisation statistics.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from deelbo._head import Head, split_head
from deelbo._modules import eval_mode, unwrap
from deelbo.likelihoods import Likelihood
from deelbo.likelihoods.categorical import IGNORED
from deelbo.metrics import main_metric, measure
from deelbo.training.batch_norm import batch_norm_layers, has_statistics, refresh_batch_norm
from deelbo.training.batches import Inputs, network_output
from deelbo.training.probe import Probe, fit_probe
from deelbo.training.ridge import Ridge, fit_ridge

MOST_EXAMPLES = 5000  # enough to tell what features are worth, and few enough for a decomposition in seconds

LITTLE = 0.03  # of the labels' entropy, which says that features do not predict them
LEAST = 0.1  # of the labels' entropy, which features are assumed to explain at least
TINY = 1e-9  # nats, instead of none, to divide by
FITTED = ("ridge", "probe")
HEAD_STARTS = ("zero", *FITTED, "random")
UNUSABLE = "there are fewer than two examples, or the features are not finite numbers"
Batches = Callable[[], Iterable[tuple[Inputs, Tensor]]]
Found = tuple[Tensor, Tensor]  # features and targets


@dataclass(frozen=True)
class Start:
    """What was found out and decided before the first step.

    Args:
        batch_norm: How batch normalisation is treated: "frozen", "batch" or "running"; "" for a network without it.
        head_start: Where the classifier starts: "zero", "ridge", "probe" or "random".
        seconds: Time that it took.
        likelihood: State of the likelihood at the first step, such as a noise, as plain values.
        frozen_features: Metrics of ridge regression on the frozen network's features, each example being predicted from
            all others; empty if the network does not end with a linear layer.
        dimension: Effective dimension of these features; None if there are none.
        guessing: Negative log-likelihood of guessing by the classes' frequencies, which is their entropy; None if the
            targets are no classes.
        classifier: Name of the last linear layer; "" if the network does not end with one.
    """

    batch_norm: str = ""
    head_start: str = "random"
    seconds: float = 0.0
    likelihood: dict[str, Any] = field(default_factory=dict)
    frozen_features: dict[str, float] = field(default_factory=dict)
    dimension: float | None = None
    guessing: float | None = None
    classifier: str = ""

    def pull(self, number: int, nll: float = 0.0) -> float:
        r"""Return pi, by how much a factor of the network's logits is pulled to zero (see `training_set_factor`).

        pi = D_e^(3/4) / 100 (F / R)^2,   F = 1 - nll / L,   R = 1 - L / H,   F at least 0, R at least 0.1

        L is the negative log-likelihood of the left-out predictions, H that of guessing. So R is the share of the
        labels' entropy that the frozen features explain, and F the share of L that training has fitted: what it has not
        fitted it has not learned by heart. Constant and exponents were measured (docs/calibration.md). Where L or H is
        unknown, as for several labels, pi = D_e / sqrt(100 N); without D_e it is 1.

        Args:
            number: N, the number of training examples.
            nll: Mean negative log-likelihood of the training examples, of the trained network.
        """
        if self.dimension is None:
            return 1.0
        if self.information is None:
            return self.dimension / math.sqrt(100 * number)
        left_out, guessing = max(self.frozen_features["nll"], TINY), max(self.guessing or 0.0, TINY)
        fitted, explained = max(0.0, 1 - nll / left_out), max(LEAST, self.information / guessing)
        return self.dimension**0.75 / 100 * (fitted / explained) ** 2

    @property
    def information(self) -> float | None:
        """How many nats of the labels' entropy the left-out predictions explain; None if there are none of classes."""
        if self.guessing is None or "nll" not in self.frozen_features:
            return None
        return self.guessing - self.frozen_features["nll"]

    @property
    def doubtful(self) -> bool:
        """Whether the features are known to predict the classes no better than guessing."""
        return self.information is not None and self.information < LITTLE * (self.guessing or 0.0)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)

    def describe(self, likelihood: str) -> str | None:
        """Return a sentence about the frozen features, or None if there are none."""
        metric = main_metric(likelihood)
        if metric.name not in self.frozen_features:
            return None
        value = metric.show(self.frozen_features[metric.name])
        return f"without fine-tuning: {metric.title} about {value} (ridge regression on frozen features, leave-one-out)"


@dataclass
class Starter:
    """Prepares a network for training.

    Args:
        network: The network with its pretrained weights, changed in place.
        likelihood: Likelihood of the targets, on the CPU; a noise of its own is fitted where a classifier is.
        batches: Function that returns batches of training examples without augmentation.
        num_outputs: Number of outputs for an example.
        head: Name of the classifier; found automatically in most networks if None.
        autocast: Function that returns the context in which the network is called.
    """

    network: nn.Module
    likelihood: Likelihood
    batches: Batches
    num_outputs: int
    head: Head = None
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext

    def prepare(self, batch_norm: str, head_start: str) -> Start:
        """Decide on batch normalisation, and give the classifier its first weights.

        Args:
            batch_norm: "frozen", "batch", "running", or "auto" for whichever of frozen and batch has the better
                features.
            head_start: "zero", "ridge", "probe" or "random"; zero becomes random where the network does not end with a
                linear layer, or features are undefined.

        Raises:
            ValueError: If a classifier is to be fitted to features that the network does not have.
        """
        network = unwrap(self.network)
        layer = self._classifier(network)
        found = None if layer is None else self._features(network, layer)
        if not batch_norm_layers(network):
            batch_norm = ""
        elif batch_norm == "auto" and not has_statistics(network):
            batch_norm = "batch"
        if layer is None or found is None:
            if head_start in FITTED:
                raise ValueError(
                    f"no classifier can be fitted to the features of {type(network).__name__}: "
                    + ("it does not end with a linear layer that is its head" if layer is None else UNUSABLE)
                )
            return Start("frozen" if batch_norm == "auto" else batch_norm, "random")
        ridge = self._ridge(layer, found)
        if batch_norm in ("auto", "batch") and (anew := self._features_of_batches(network, layer)) is not None:
            other = self._ridge(layer, anew)
            if batch_norm == "batch" or other.nll < ridge.nll:
                batch_norm, found, ridge = "batch", anew, other
        batch_norm = "frozen" if batch_norm == "auto" else batch_norm
        self._set(layer, head_start, ridge, found)
        return Start(
            batch_norm,
            head_start,
            frozen_features=self._metrics(ridge),
            dimension=ridge.dimension,
            guessing=self._guessing(ridge.targets),
            classifier=next(name for name, module in network.named_modules() if module is layer),
        )

    def _ridge(self, layer: nn.Linear, found: Found) -> Ridge:
        return fit_ridge(*found, self.likelihood, self.num_outputs, bias=layer.bias is not None)

    def _features_of_batches(self, network: nn.Module, layer: nn.Linear) -> Found | None:
        """Return the features with batch-normalisation statistics of the training examples."""
        kept = {name: buffer.clone() for name, buffer in network.named_buffers()}
        refresh_batch_norm(network, (inputs for inputs, _ in self.batches()))
        found = self._features(network, layer)
        for name, buffer in network.named_buffers():
            buffer.copy_(kept[name])
        return found

    def _classifier(self, network: nn.Module) -> nn.Linear | None:
        """Return the linear layer that is the head, or its last layer, and gives the network's output.

        It must be called once, on one row for each example, and share its weights with no other layer.
        """
        _, head = split_head(network, self.head)
        own = {id(parameter) for parameter in head.values()}
        names = Counter(id(parameter) for _, parameter in network.named_parameters(remove_duplicate=False))
        layers = [
            m
            for m in network.modules()
            if isinstance(m, nn.Linear) and id(m.weight) in own and names[id(m.weight)] == 1
        ]
        calls: dict[nn.Module, list[tuple[Any, Tensor]]] = {layer: [] for layer in layers}
        hooks = [layer.register_forward_hook(lambda m, given, out: calls[m].append((given, out))) for layer in layers]
        try:
            inputs, labels = next(iter(self.batches()))
            output = self._call(network, inputs)
        finally:
            for hook in hooks:
                hook.remove()
        for layer in layers:
            if len(calls[layer]) == 1 and layer.out_features == self.num_outputs:
                given, out = calls[layer][0]
                rows = len(given) == 1 and given[0].ndim == 2 and len(given[0]) == len(labels)
                if rows and torch.equal(out.flatten().nan_to_num(), output.flatten().nan_to_num()):
                    return layer
        return None

    @torch.no_grad()
    def _call(self, network: nn.Module, inputs: Inputs) -> Tensor:
        with eval_mode(network), self.autocast():
            return network_output(network, inputs)

    def _features(self, network: nn.Module, layer: nn.Linear) -> Found | None:
        """Return the inputs of a layer and the targets; None if there are fewer than two, or some are undefined."""
        found: list[Tensor] = []
        targets: list[Tensor] = []
        hook = layer.register_forward_pre_hook(lambda layer, inputs: found.append(inputs[0].detach().float().cpu()))
        try:
            for inputs, labels in self.batches():
                self._call(network, inputs)
                targets.append(labels.cpu())
        finally:
            hook.remove()
        features, labels = torch.cat(found), torch.cat(targets)
        if self.likelihood.name == "categorical":
            features, labels = features[labels != IGNORED], labels[labels != IGNORED]
        return (features, labels) if len(features) > 1 and bool(features.isfinite().all()) else None

    def _set(self, layer: nn.Linear, head_start: str, ridge: Ridge, found: Found) -> None:
        if head_start == "random":
            return
        fitted: Ridge | Probe = ridge
        if head_start == "probe":
            fitted = fit_probe(*found, self.likelihood, self.num_outputs, bias=layer.bias is not None)
        factor = float(head_start in FITTED)  # else zero
        with torch.no_grad():
            layer.weight.copy_(factor * fitted.weight)
            if layer.bias is not None:
                layer.bias.copy_(factor * fitted.bias)
        if head_start in FITTED:
            self.likelihood.fit_noise(ridge.left_out, ridge.targets)

    def _guessing(self, targets: Tensor) -> float | None:
        if self.likelihood.name != "categorical":
            return None
        return float(torch.special.entr(targets.bincount().double() / len(targets)).sum())

    def _metrics(self, ridge: Ridge) -> dict[str, float]:
        """Return the metrics of the left-out predictions; of numbers, whose noise is not known yet, only the main one.

        They inform the user, so where the metrics cannot be computed (of a single label, for example) there are none.
        """
        prediction = self.likelihood.prediction(self.likelihood.averageable(ridge.left_out))
        main = main_metric(self.likelihood.name)
        with suppress(ValueError, RuntimeError):
            if not self.likelihood.scale_free:
                return {main.name: main.compute(self.likelihood.shown(prediction), ridge.targets)}
            return measure(self.likelihood, prediction, ridge.targets)
        return {}
