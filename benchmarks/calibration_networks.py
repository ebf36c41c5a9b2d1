"""What is computed of a kept network of `calibration.py`, once: features, logits, and other networks beside it."""

from __future__ import annotations

import copy
import math
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import safetensors.torch
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.data import Dataset

import deelbo
from deelbo import events
from deelbo._modules import eval_mode, trainable
from deelbo.compare.problem import Trial
from deelbo.compare.running import read_data
from deelbo.data import split
from deelbo.laplace import laplace_posterior
from deelbo.likelihoods import LIKELIHOODS, Categorical
from deelbo.loading import load
from deelbo.metrics.base import METRICS, metrics_of
from deelbo.result import Result
from deelbo.training.batches import in_order, labels_of, network_output
from deelbo.training.blend import blend
from deelbo.training.last_layer import LastLayer, spread, usual_margin
from deelbo.training.loop import Candidate
from deelbo.training.sets import TrainingSets
from deelbo.training.settings import PAIR_RATES
from deelbo.training.start import Start, Starter

LINEARISED = "Laplace, all weights, linearised"
DRAWS = 10
EARLY = (0.2, 0.5)  # of the steps, at which early networks are looked at
SMOOTHING = 0.1


@LIKELIHOODS.register("smoothed", "one class for each example, with label smoothing")
class Smoothed(Categorical):
    """The cross-entropy with label smoothing, as PyTorch has it; all else is that of `Categorical`."""

    name = "smoothed"

    def _cross_entropy(self, output: Tensor, target: Tensor, reduction: str) -> Tensor:
        return F.cross_entropy(output, target, reduction=reduction, label_smoothing=SMOOTHING)


for entry in metrics_of("categorical").values():
    METRICS.register(f"smoothed:{entry.name}", entry.title)(replace(entry, likelihood="smoothed"))


@dataclass
class Kept:
    """A kept run with what it was trained and tested on."""

    path: Path
    result: Result
    before: nn.Module
    sets: TrainingSets
    test: Dataset
    precision: str

    def autocast(self) -> AbstractContextManager[Any]:
        """Return the precision in which the network was trained."""
        return torch.autocast("cpu", torch.bfloat16, enabled=self.precision == "bf16")


def read_kept(name: str, trial: Trial, out: Path) -> Kept:
    """Read a kept run, its pretrained network and its data."""
    data = read_data(replace(trial.data_spec, train_size=None), trial.test_size)
    data = split(data, trial.data_spec.train_size, None, trial.settings.seed)
    network, reader = trial.model_spec.load(data, trial.settings.seed)
    before, _ = trial.model_spec.load(data, trial.settings.seed)
    sets = TrainingSets(*reader.training_sets(data.train, False, None, trial.data_spec.flip))
    assert data.test is not None
    path = out / "networks" / name
    return Kept(path, load(path, network), before, sets, reader.dataset(data.test), trial.precision)


@torch.no_grad()
def outputs(kept: Kept, network: nn.Module, dataset: Dataset, layer: nn.Linear | None = None) -> tuple[Tensor, Tensor]:
    """Return inputs of the last layer (none if it is not given) and outputs of a network."""
    features: list[Tensor] = [torch.empty(0)]
    logits: list[Tensor] = []
    if layer is not None:
        hook = layer.register_forward_pre_hook(lambda _, inputs: features.append(inputs[0].float()))
    with eval_mode(network), kept.autocast():
        for inputs, _ in in_order(dataset, 64, torch.device("cpu")):
            logits.append(network_output(network, inputs).float())
    if layer is not None:
        hook.remove()
    return torch.cat(features[1:] or features), torch.cat(logits)


def last_layer(network: nn.Module, kept: Kept, num_classes: int) -> nn.Linear:
    """Return the classifier of a network."""
    starter = Starter(network, Categorical(), lambda: in_order(kept.sets.plain, 32, torch.device("cpu")), num_classes)
    layer = starter._classifier(network)
    assert layer is not None
    return layer


def observe(name: str, trial: Trial, out: Path) -> dict[str, Tensor]:
    """Return what the contenders need of a kept run: features and logits; computed once."""
    path = out / "networks" / f"{name}.safetensors"
    if path.exists():
        return safetensors.torch.load_file(path)
    kept = read_kept(name, trial, out)
    network, seen = kept.result.model, {"train_y": labels_of(kept.sets.plain), "test_y": labels_of(kept.test)}
    classes = int(seen["train_y"].max()) + 1
    layer = last_layer(network, kept, classes)
    seen["frozen"], _ = outputs(kept, kept.before, kept.sets.plain, last_layer(kept.before, kept, classes))
    seen["train_h"], seen["train_z"] = outputs(kept, network, kept.sets.plain, layer)
    seen["test_h"], seen["test_z"] = outputs(kept, network, kept.test, layer)
    seen["V"] = layer.weight.detach().clone()
    seen["tau"] = torch.tensor(kept.result.prior_variances["head"], dtype=torch.float64)
    start = Start(**kept.result.start)
    seen["frozen_accuracy"] = torch.tensor(start.frozen_features["accuracy"], dtype=torch.float64)
    seen["information"] = torch.tensor(start.information, dtype=torch.float64)
    safetensors.torch.save_file(seen, path)
    return seen


def linearised_laplace(kept: Kept) -> Tensor:
    """Return logits f(x) + J(x) (w - mean) for draws w of Laplace's approximation over all weights, on the test set.

    The curvature is the diagonal of the empirical Fisher information, the prior's variances are the learned ones.
    """
    network = kept.result.model
    prior = deelbo.priors.l2_zero(network)  # its mean has no part in the covariance
    prior.set_variances(kept.result.prior_variances)
    logits, labels = outputs(kept, network, kept.sets.plain)[1], labels_of(kept.sets.plain)
    log_likelihood = -float(F.cross_entropy(logits, labels, reduction="sum"))
    with eval_mode(network):
        batches = in_order(kept.sets.plain, 16, torch.device("cpu"))
        posterior = laplace_posterior(network, prior, batches, log_likelihood)
        weights = {name: weight.detach().clone() for name, weight in trainable(network).items()}
        found = []
        for seed in range(DRAWS):
            with posterior.sample(seed=seed):
                moves = {name: w.detach() - weights[name] for name, w in trainable(network).items()}
            found.append(torch.cat([_linear(network, weights, moves, x) for x, _ in _batches(kept.test)]))
    return torch.stack(found)


def _batches(dataset: Dataset) -> Any:
    return in_order(dataset, 64, torch.device("cpu"))


@torch.no_grad()
def _linear(network: nn.Module, weights: dict[str, Tensor], moves: dict[str, Tensor], inputs: Any) -> Tensor:
    """Return f(x) + J(x) moves, by forward differentiation."""

    class Call(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self) -> Tensor:
            return network_output(self.network, inputs)

    call = Call()

    def output(values: dict[str, Tensor]) -> Tensor:
        named = {f"network.{name}": value for name, value in values.items()}
        return torch.func.functional_call(call, named, ())

    with sdpa_kernel(SDPBackend.MATH):  # the others have no forward derivative
        value_and_slope = torch.func.jvp(output, (weights,), (moves,))
    return value_and_slope[0] + value_and_slope[1]


@dataclass
class Trained:
    """A kept network of texts as `blend` asks for it: all training features, and a classifier that can be fitted."""

    kept: Kept
    last: LastLayer

    @property
    def network(self) -> nn.Module:
        return self.kept.result.model

    def refresh_batch_norm(self) -> None:
        """Do nothing: networks of texts have no batch normalisation."""

    def features(self) -> tuple[Tensor, Tensor]:
        return outputs(self.kept, self.network, self.kept.sets.plain, self.last.layer)[0], labels_of(
            self.kept.sets.plain
        )

    def spread(self) -> float:
        return spread(*self.features())

    def share_right(self) -> float:
        return self.last.accuracy(*self.features())

    def fit_last_layer(self) -> float:
        self.last.fit(*self.features(), Categorical())
        return self.share_right()


def trained_again(kept: Kept, listener: events.Listener = events.ignore, **changes: Any) -> None:
    """Train the pretrained network of a kept run again, with the run's settings but for some."""
    settings = {**kept.result.settings.as_dict(), "learning_rates": (kept.result.learning_rate,), **changes}
    deelbo.finetune(
        kept.before,
        kept.sets.augmented,
        plain_train_set=kept.sets.plain,
        device="cpu",
        precision=kept.precision,
        listener=listener,
        **settings,
    )


def observe_default(name: str, trial: Trial, out: Path) -> dict[str, Tensor]:
    """Return test logits of what the default makes of texts: trained by pairs, or a blend of the kept network."""
    path = out / "networks" / f"{name}.default.safetensors"
    if path.exists():
        return safetensors.torch.load_file(path)
    kept = read_kept(name, trial, out)
    labels, start = labels_of(kept.sets.plain), Start(**kept.result.start)
    classes = int(labels.max()) + 1
    if replace(trial.settings, pairs=None).decided(True, len(labels), classes).pairs:
        trained_again(kept, pairs=None, blend=None, learning_rates=PAIR_RATES)
        network, share = kept.before, 1.0
    else:
        network = kept.result.model
        last = LastLayer(last_layer(network, kept, classes), usual_margin(start.information))
        share = blend(cast(Candidate, Trained(kept, last)), kept.before.state_dict(), None)
    found = {"test_z": outputs(kept, network, kept.test)[1], "share": torch.tensor(share)}
    safetensors.torch.save_file(found, path)
    return found


def average_of_draws(kept: Kept) -> Tensor:
    """Return the logarithms of test probabilities that are averaged over draws from the posterior."""
    found = []
    assert kept.result.posterior is not None
    for seed in range(DRAWS):
        with kept.result.posterior.sample(seed=seed):
            found.append(outputs(kept, kept.result.model, kept.test)[1])
    return log_mean(torch.stack(found))


class Enough(Exception):
    """Ends a training after the last early look at it."""


def observe_other(name: str, trial: Trial, out: Path) -> dict[str, Tensor]:
    """Return test logits of early networks of the run, of one with label smoothing, and averaged over draws; kept."""
    path = out / "networks" / f"{name}.other.safetensors"
    if path.exists():
        return safetensors.torch.load_file(path)
    kept = read_kept(name, trial, out)
    found = {f"average of {DRAWS} draws": average_of_draws(kept)}
    steps = kept.result.settings.steps
    looks = {round(share * steps): f"after {share:.0%} of the steps" for share in EARLY}

    def look(event: events.Event) -> None:
        if isinstance(event, events.StepTaken) and event.step in looks:
            found[looks[event.step]] = outputs(kept, kept.before, kept.test)[1]
            if event.step == max(looks):
                raise Enough

    initial = copy.deepcopy(kept.before.state_dict())
    with suppress(Enough):
        trained_again(kept, look)
    kept.before.load_state_dict(initial)
    trained_again(kept, likelihood="smoothed")
    found[f"label smoothing {SMOOTHING}"] = outputs(kept, kept.before, kept.test)[1]
    safetensors.torch.save_file(found, path)
    return found


def observe_linearised(name: str, trial: Trial, out: Path) -> dict[str, Tensor]:
    """Return the logarithms of test probabilities of the linearised network; computed once."""
    path = out / "networks" / f"{name}.linearised.safetensors"
    if path.exists():
        return safetensors.torch.load_file(path)
    found = {LINEARISED: log_mean(linearised_laplace(read_kept(name, trial, out)))}
    safetensors.torch.save_file(found, path)
    return found


def log_mean(logits: Tensor) -> Tensor:
    """Return the logarithms of class probabilities that are averaged over draws, from logits [draws, examples, C]."""
    return logits.double().log_softmax(2).logsumexp(0) - math.log(len(logits))
