"""Before the first step: what the features of the frozen network are worth, and where its classifier starts.

The features are the inputs of the network's last linear layer. Ridge regression on them says, without a held-out set,
what a classifier on the frozen network would reach; it also decides between two sets of batch-normalisation statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from deelbo._head import Head, split_head
from deelbo._modules import eval_mode, unwrap
from deelbo.likelihoods import Likelihood
from deelbo.metrics import compute_metrics, main_metric
from deelbo.training.batch_norm import batch_norm_layers, has_statistics, refresh_batch_norm
from deelbo.training.batches import Inputs, network_output
from deelbo.training.probe import fit_probe
from deelbo.training.ridge import Ridge, fit_ridge

MOST_EXAMPLES = 5000  # enough to tell what features are worth, and few enough for a decomposition in seconds

HEAD_STARTS = ("zero", "ridge", "probe", "random")
Batches = Callable[[], Iterable[tuple[Inputs, Tensor]]]


@dataclass(frozen=True)
class Start:
    """What was found out and decided before the first step.

    Args:
        batch_norm: How batch normalisation is treated: "frozen", "batch" or "running"; "" for a network without it.
        head_start: Where the classifier starts: "zero", "ridge", "probe" or "random".
        seconds: Time that it took.
        frozen_features: Metrics of ridge regression on the frozen network's features, each example being predicted from
            all others; empty if the network does not end with a linear layer.
    """

    batch_norm: str = ""
    head_start: str = "random"
    seconds: float = 0.0
    frozen_features: dict[str, float] = field(default_factory=dict)

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
        likelihood: Likelihood of the targets.
        batches: Function that returns batches of training examples without augmentation.
        num_outputs: Number of outputs for an example.
        head: Name of the classifier; found automatically in most networks if None.
    """

    network: nn.Module
    likelihood: Likelihood
    batches: Batches
    num_outputs: int
    head: Head = None

    def prepare(self, batch_norm: str, head_start: str) -> Start:
        """Decide on batch normalisation, and give the classifier its first weights.

        Args:
            batch_norm: "frozen", "batch", "running", or "auto" for whichever of frozen and batch has the better
                features.
            head_start: "zero", "ridge", "probe" or "random"; it is random where the network does not end with a linear
                layer, or features are undefined.
        """
        layer = self._classifier()
        found = None if layer is None else self._features(layer)
        if not batch_norm_layers(self.network):
            batch_norm = ""
        elif batch_norm == "auto" and not has_statistics(self.network):
            batch_norm = "batch"
        if layer is None or found is None:
            return Start("frozen" if batch_norm == "auto" else batch_norm, "random")
        ridge = fit_ridge(*found, self.likelihood, self.num_outputs)
        if batch_norm in ("auto", "batch"):
            anew = self._features_of_batches(layer)
            other = None if anew is None else fit_ridge(*anew, self.likelihood, self.num_outputs)
            if anew is not None and other is not None and (batch_norm == "batch" or other.nll < ridge.nll):
                batch_norm, found, ridge = "batch", anew, other
            elif batch_norm == "auto":
                batch_norm = "frozen"
        self._set(layer, head_start, ridge, found)
        return Start(batch_norm, head_start, frozen_features=self._metrics(ridge))

    def _features_of_batches(self, layer: nn.Linear) -> tuple[Tensor, Tensor] | None:
        """Return the features with batch-normalisation statistics of the training examples."""
        kept = {name: buffer.clone() for name, buffer in self.network.named_buffers()}
        refresh_batch_norm(self.network, (inputs for inputs, _ in self.batches()))
        found = self._features(layer)
        for name, buffer in self.network.named_buffers():
            buffer.copy_(kept[name])
        return found

    def _classifier(self) -> nn.Linear | None:
        """Return the linear layer whose output is the network's output, if it is the head or its last layer."""
        network = unwrap(self.network)
        _, head = split_head(network, self.head)
        own = {id(parameter) for parameter in head.values()}
        layers = [m for m in network.modules() if isinstance(m, nn.Linear) and id(m.weight) in own]
        given: dict[nn.Module, Tensor] = {}

        def keep(layer: nn.Module, inputs: Any, output: Tensor) -> None:
            given[layer] = output

        inputs, _ = next(iter(self.batches()))
        hooks = [layer.register_forward_hook(keep) for layer in layers]
        try:
            with torch.no_grad(), eval_mode(network):
                output = network_output(network, inputs)
        finally:
            for hook in hooks:
                hook.remove()
        last = [m for m in layers if m in given and torch.equal(given[m].flatten(), output.flatten())]
        return last[0] if last else None

    def _features(self, layer: nn.Linear) -> tuple[Tensor, Tensor] | None:
        """Return the inputs of a layer and the targets; None with a single example or undefined features."""
        found: list[Tensor] = []
        targets: list[Tensor] = []
        hook = layer.register_forward_pre_hook(lambda layer, inputs: found.append(inputs[0].detach().float()))
        try:
            with torch.no_grad(), eval_mode(self.network):
                for inputs, labels in self.batches():
                    network_output(self.network, inputs)
                    targets.append(labels)
        finally:
            hook.remove()
        features = torch.cat(found).flatten(1).cpu()
        if len(features) < 2 or not bool(features.isfinite().all()):
            return None
        return features, torch.cat(targets).cpu()

    def _set(self, layer: nn.Linear, head_start: str, ridge: Ridge, found: tuple[Tensor, Tensor]) -> None:
        if head_start == "random":
            return
        fitted = fit_probe(*found, self.likelihood, self.num_outputs) if head_start == "probe" else ridge
        factor = 0.0 if head_start == "zero" else 1.0
        with torch.no_grad():
            layer.weight.copy_(factor * fitted.weight)
            if layer.bias is not None:
                layer.bias.copy_(factor * fitted.bias)

    def _metrics(self, ridge: Ridge) -> dict[str, float]:
        """Return the metrics of the left-out predictions; without a noise that was learned, only the main one."""
        prediction = self.likelihood.prediction(self.likelihood.averageable(ridge.left_out))
        metrics = compute_metrics(self.likelihood.name, prediction, ridge.targets)
        main = main_metric(self.likelihood.name).name
        return metrics if self.likelihood.scale_free else {main: metrics[main]}
