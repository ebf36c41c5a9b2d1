"""The training loop: one network, one learning rate at a time, resumable at any step."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from deelbo._modules import eval_mode
from deelbo._processes import copy_from_first
from deelbo._seeds import mix
from deelbo.likelihoods import Likelihood
from deelbo.optimizers import OPTIMIZERS
from deelbo.training.batch_norm import refresh_batch_norm, train_mode
from deelbo.training.batches import (
    even_parts,
    fetch,
    in_order,
    network_output,
    steps_per_epoch,
)
from deelbo.training.history import History
from deelbo.training.last_layer import LastLayer, spread
from deelbo.training.method import Method
from deelbo.training.pairs import class_mean_logits, pair_loss
from deelbo.training.pipeline import StepBatches
from deelbo.training.settings import Settings
from deelbo.training.start import MOST_EXAMPLES

if TYPE_CHECKING:
    from accelerate import Accelerator

State = tuple[dict[str, Tensor], dict[str, Any]]

READING = 20  # steps after which the loss is read, on devices other than the CPU
EARLY_EXAMPLES, EARLY_SAMPLES = 500, 1  # enough to tell learning rates apart; see docs/results.md
SPREAD_EXAMPLES = 1000  # enough to tell how far apart features of one class lie


class Candidate:
    """Training at one learning rate, from the initial state of the network.

    Everything random is a function of the seed and the step, so a state is the weights, the optimizer's buffers, the
    method's own state and a few numbers; on the CPU, a run continued from it equals the uninterrupted one bit for bit.

    Args:
        network: The network, at its initial state.
        method: The method, made for this network.
        likelihood: Likelihood of the targets; its own parameters, such as a noise, are trained as well.
        batches: Batches of training examples, with augmentation if there is any; one object for all candidates.
        plain_set: The same examples without augmentation.
        learning_rate: Learning rate at the beginning of the cosine schedule.
        settings: Settings of the run.
        accelerator: Accelerate's object for device, precision and processes.
        batch_norm: How batch normalisation is treated: "frozen", "batch" or "running".
        last_layer: The classifier at the network's end, which the settings' pairs need; None if it is not used.
        objective_examples: Number of examples of the final estimate of the objective; all if None.
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        method: Method,
        likelihood: Likelihood,
        batches: StepBatches,
        plain_set: Dataset,
        learning_rate: float,
        settings: Settings,
        accelerator: Accelerator,
        batch_norm: str = "batch",
        last_layer: LastLayer | None = None,
        objective_examples: int | None = None,
    ) -> None:
        self.batch_norm, self.last_layer, self.objective_examples = batch_norm, last_layer, objective_examples
        self.network, self.method, self.likelihood = network, method, likelihood
        self.batches, self.plain_set = batches, plain_set
        self.learning_rate, self.settings, self.accelerator = learning_rate, settings, accelerator
        self.num_data = len(plain_set)  # type: ignore[arg-type]
        self._parameters = [*method.parameters(), *likelihood.parameters()]
        optimizer = OPTIMIZERS[settings.optimizer](self._parameters, learning_rate, settings)
        self.optimizer = accelerator.prepare_optimizer(optimizer)
        self.step = 0
        self._cooling: tuple[int, int] | None = None
        self._measured = History()
        # Seconds by purpose, and the numbers of steps and examples, including those of cooling down.
        self.clock = dict.fromkeys(("data", "network", "steps", "objective", "number", "examples"), 0.0)

    def advance(self, until: int) -> Iterator[int]:
        """Train up to a step and yield the number of each step; stop early if the loss has diverged."""
        train_mode(self.network, self.batch_norm, self.settings.dropout)
        # Reading the loss makes the host wait for a GPU, which is not worth it at every step.
        every = 1 if self.accelerator.device.type == "cpu" else READING
        while self.step < min(until, self.settings.steps) and not (self.step % every == 0 and self.diverged):
            self.take_step()
            epoch = steps_per_epoch(self.num_data, self.settings.batch_size)
            if self.step % epoch == 0:
                self._end_epoch()
            if self._cooling is None and (self.step % epoch == 0 or self.step == until):
                self._record()
            yield self.step

    @property
    def history(self) -> list[dict[str, float]]:
        """What was measured, a row for each epoch."""
        return self._measured.rows

    @property
    def diverged(self) -> bool:
        """Whether the loss has become infinite or undefined."""
        return self._measured.diverged

    @property
    def pairing(self) -> bool:
        """Whether the loss of the data is that of pairs: in some runs, until the classifier is fitted at their end."""
        return self._by_pairs and self.step < self.settings.steps

    @property
    def _by_pairs(self) -> bool:
        return bool(self.settings.pairs) and self.last_layer is not None

    def take_step(self) -> None:
        """Take one training step; `advance` does more: it ends with the schedule, and keeps the history."""
        settings, start = self.settings, time.perf_counter()
        inputs, labels = self.batches.take(self.step)
        joint = min(settings.batch_size, self.num_data)  # examples that all processes have together
        self.clock["data"] += time.perf_counter() - start
        rate = self._rate()
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad()
        self.method.add_gradients(lambda: self._backward(inputs, labels, joint), self._unscale)
        if settings.clip is not None:
            torch.nn.utils.clip_grad_norm_(self._parameters, settings.clip)
        self.optimizer.step()
        self.step += 1
        self.clock["steps"] += time.perf_counter() - start
        self.clock["number"] += 1
        self.clock["examples"] += joint

    def _rate(self) -> float:
        """Return the rate of this step: the schedule's, or a line to zero while cooling down."""
        begin, length = self._cooling or (self.step, 0)
        done = begin / self.settings.steps
        left = 1 - done if self.settings.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * done))
        rate = self.learning_rate * left
        return rate * (1 - (self.step - begin) / (length + 1))

    def cool(self, length: int) -> None:
        """Let the rate go to zero over the next steps, which removes the noise that a large rate adds to the objective.

        `restore` ends it: the caller keeps the state from before and continues from there.
        """
        self._cooling = (self.step, length)

    def _backward(self, inputs: Any, labels: Tensor, joint: int) -> None:
        start = time.perf_counter()
        with self.accelerator.autocast(), self._features() as features:
            output = network_output(self.network, inputs)
            nll = loss = self.likelihood(output.float(), labels)
        if self.pairing:
            # The classifier, which is not used, still has a gradient, zero, for which optimizers and DDP wait.
            loss = pair_loss(features[0], labels) + 0 * nll
            output = class_mean_logits(features[0].detach(), labels, output.shape[1])
            nll = self.likelihood(output, labels)
        # DDP takes the mean over processes, whose parts may differ by one example.
        share = len(labels) * self.accelerator.num_processes / joint
        self.accelerator.backward(share * loss / self.settings.draws)  # the draws of a step are averaged
        score = self.likelihood.training_score(output.detach(), labels)
        means = torch.stack([loss.detach(), nll.detach()]) * len(labels)
        sums = torch.cat([means, torch.stack([score.sum, torch.full_like(score.sum, len(labels))])])
        # All processes must see the same sums: each decides by them whether the run has diverged.
        self._measured.add(self.accelerator.reduce(sums), score.column)
        self.clock["network"] += time.perf_counter() - start

    def _features(self) -> AbstractContextManager[list[Tensor]]:
        """Collect the features while pairs are trained, and nothing later."""
        return self._fitted_layer().features() if self.pairing else nullcontext([])

    def _unscale(self) -> None:
        self.accelerator.unscale_gradients(self.optimizer)  # undoes the scaling of the loss under float16
        if self.accelerator.num_processes > 1:  # DDP averages only the gradients of the network
            for parameter in self.likelihood.parameters():
                parameter.grad = self.accelerator.reduce(parameter.grad, "mean")

    def _record(self) -> None:
        """Add a row to the history, at the end of an epoch and where candidates are compared."""
        measured = {
            "epoch": self.step / steps_per_epoch(self.num_data, self.settings.batch_size),
            "rate": self._rate(),
            **self._measured.means(),
            **self.likelihood.learned(),
            **self.method.learned(),
        }
        self.history.append({"learning_rate": self.learning_rate, "step": self.step, **measured})
        self.accelerator.log({f"{self.learning_rate:g}/{name}": v for name, v in measured.items()}, self.step)

    # ---- the objective that chooses the learning rate ----

    def objective(self, final: bool) -> float:
        """Estimate the training objective in eval mode on the plain training examples.

        Batch-normalisation statistics belong to the weights: each draw gets its own, as in training. With those of the
        mean, the objective would fall as the posterior widens, although training on it goes well.

        Args:
            final: Whether this is the end of the run: then on all examples (or `objective_examples` of them), with all
                draws, and the network keeps statistics estimated anew at the mean weights. An early estimate, which
                only compares candidates, uses the same `EARLY_EXAMPLES` examples and `EARLY_SAMPLES` draws for each,
                and the method's `optimistic_objective`; the caller restores the state from before.
        """
        if self.diverged:
            return -math.inf
        start = time.perf_counter()
        order = torch.randperm(self.num_data, generator=torch.Generator().manual_seed(mix(self.settings.seed, 2)))
        few = sorted(order[:EARLY_EXAMPLES].tolist())
        many = sorted(order[: self.objective_examples].tolist())
        samples = self.settings.samples if final else min(EARLY_SAMPLES, self.settings.samples)
        if final and self._by_pairs:
            self.fit_last_layer()
        buffers = {name: b.clone() for name, b in self.network.named_buffers()}

        estimate = self.method.objective if final else self.method.optimistic_objective
        value = self._agreed(estimate(View(self, many if final else few, few), samples))
        for name, buffer in self.network.named_buffers():
            buffer.copy_(buffers[name])
        if final:
            most = None if self.objective_examples is None else max(self.objective_examples, MOST_EXAMPLES)
            self._refresh_batch_norm(sorted(order[:most].tolist()))
        self.clock["objective"] += time.perf_counter() - start
        return value if math.isfinite(value) else -math.inf

    # ---- the last layer, where it is fitted at the end ----

    def fit_last_layer(self) -> float:
        """Fit the last layer to the features of some examples at the mean weights; all processes get the same one.

        Returns:
            Share of these examples that it predicts rightly.
        """
        last = self._fitted_layer()
        features, labels = self._features_of_examples()
        last.fit(features, labels, self.likelihood)
        copy_from_first(last.layer.parameters())
        return self._agreed(last.accuracy(features, labels))

    def share_right(self) -> float:
        """Return the share of the same examples that the network predicts rightly as it is."""
        return self._agreed(self._fitted_layer().accuracy(*self._features_of_examples()))

    def spread(self) -> float:
        """Return which part of the variance of some examples' features, at the mean weights, lies within classes."""
        return self._agreed(spread(*self._features_of_examples(SPREAD_EXAMPLES)))

    def refresh_batch_norm(self) -> None:
        """Estimate batch-normalisation statistics anew on the same examples, where batches gave them in training."""
        self._refresh_batch_norm(self._some_examples())

    def _fitted_layer(self) -> LastLayer:
        if self.last_layer is None:
            raise ValueError("the network does not end with a linear layer, so there is no classifier to fit")
        return self.last_layer

    def _some_examples(self, most: int = MOST_EXAMPLES) -> list[int]:
        order = torch.randperm(self.num_data, generator=torch.Generator().manual_seed(mix(self.settings.seed, 2)))
        return sorted(order[:most].tolist())

    @torch.no_grad()
    def _features_of_examples(self, most: int = MOST_EXAMPLES) -> tuple[Tensor, Tensor]:
        """Return the last layer's inputs for some examples, and their labels."""
        features, targets, last = [], [], self._fitted_layer()
        for inputs, labels in self._plain_batches(self._some_examples(most)):
            with eval_mode(self.network), self.accelerator.autocast(), last.features() as found:
                network_output(self.network, inputs)
            features.append(found[0])
            targets.append(labels)
        return torch.cat(features), torch.cat(targets)

    def _end_epoch(self) -> None:
        if self.diverged:
            return
        start = time.perf_counter()
        self.method.end_epoch(View(self, list(range(self.num_data))))
        self.clock["steps"] += time.perf_counter() - start  # counted as part of the training

    def _agreed(self, value: float) -> float:
        """Return the mean over all processes, whose last bits may differ, so that all take the same decision."""
        if self.accelerator.num_processes == 1:
            return value
        device = self.accelerator.device
        dtype = torch.float32 if device.type == "mps" else torch.float64
        return float(self.accelerator.reduce(torch.tensor(value, dtype=dtype, device=device), "mean"))

    def _plain_batches(self, indices: list[int]) -> Iterator[tuple[Any, Tensor]]:
        return in_order(self.plain_set, self.settings.batch_size, self.accelerator.device, indices)

    def _mixed_batches(self, indices: list[int]) -> Iterator[tuple[Any, Tensor]]:
        """Yield batches at random, since examples may be in the order of their classes."""
        for part in even_parts(indices, self.settings.batch_size, self.settings.seed):
            yield fetch(self.plain_set, part, self.accelerator.device)

    def _refresh_batch_norm(self, indices: list[int]) -> None:
        if self.batch_norm == "batch":
            refresh_batch_norm(self.network, (inputs for inputs, _ in self._mixed_batches(indices)))

    @torch.no_grad()
    def _log_likelihood(self, indices: list[int]) -> Tensor:
        """Return the log-likelihood of the training set at the current weights, estimated from some of its examples.

        While pairs are trained, -N times their mean loss takes its place.
        """
        total = torch.zeros((), dtype=torch.float64)
        for inputs, labels in self._mixed_batches(indices) if self.pairing else self._plain_batches(indices):
            with self.accelerator.autocast(), self._features() as features:
                output = network_output(self.network, inputs)
            if self.pairing:
                total -= len(labels) * pair_loss(features[0], labels).double().cpu()
            else:
                total += self.likelihood.log_likelihood(output.float(), labels).double().cpu()
        return total * (self.num_data / len(indices))

    # ---- states ----

    def state(self) -> State:
        """Return copies of all that is needed to continue training."""
        optimizer = self.optimizer.state_dict()["state"]
        tensors = {
            **{f"network.{name}": value for name, value in self.network.state_dict().items()},
            **{f"method.{name}": value for name, value in self.method.state_dict().items()},
            **{f"likelihood.{name}": value for name, value in self.likelihood.state_dict().items()},
            **{f"optimizer.{i}.{name}": v for i, s in optimizer.items() for name, v in s.items() if v is not None},
        }
        notes = {"step": self.step, **self._measured.notes(), "clock": dict(self.clock)}
        return {name: tensor.detach().clone() for name, tensor in tensors.items()}, notes

    def restore(self, state: State) -> None:
        """Continue from a state that `state` returned."""
        tensors, notes = state
        self.network.load_state_dict(_part(tensors, "network."))
        self.method.load_state_dict(_part(tensors, "method."))
        self.likelihood.load_state_dict(_part(tensors, "likelihood."))
        optimizer = self.optimizer.state_dict()
        optimizer["state"] = {}
        for name, value in _part(tensors, "optimizer.").items():
            index, key = name.split(".", 1)
            # A copy, because the optimizer changes it in place and the state may be restored again.
            optimizer["state"].setdefault(int(index), {})[key] = value.clone()
        self.optimizer.load_state_dict(optimizer)
        self._measured.restore(notes)
        self.step, self.clock, self._cooling = notes["step"], dict(notes["clock"]), None


@dataclass(frozen=True)
class View:
    """The examples as a method sees them (`TrainingView`).

    Before a log-likelihood, batch-normalisation statistics are estimated on the examples `refresh`, unless it is None.
    """

    candidate: Candidate
    indices: list[int]
    refresh: list[int] | None = None

    def log_likelihood(self) -> Tensor:
        """Return the log-likelihood of the training set."""
        if self.refresh is not None:
            self.candidate._refresh_batch_norm(self.refresh)
        return self.candidate._log_likelihood(self.indices)

    def batches(self) -> Iterator[tuple[Any, Tensor]]:
        """Yield batches of inputs and targets."""
        return self.candidate._plain_batches(self.indices)

    @property
    def share(self) -> float:
        """Share of the training set that the batches contain."""
        return len(self.indices) / self.candidate.num_data


MakeCandidate = Callable[[float], Candidate]


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
