"""The training loop: one network, one learning rate at a time, resumable at any step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import Tensor, nn
from torch.utils.data import Dataset

from deelbo.training.batch_norm import refresh_batch_norm
from deelbo.training.batches import fetch, in_order, indices_of_step, logits, seed_step, steps_per_epoch
from deelbo.training.method import Method
from deelbo.training.settings import Settings

State = tuple[dict[str, Tensor], dict[str, Any]]


class Candidate:
    """A run at one learning rate, from the initial state of the network.

    Everything random is a function of the seed and the step, so a state is the weights, the optimizer's buffers, the
    method's own state and a few numbers; a run that goes on from it is bit for bit the uninterrupted one on the CPU.

    Args:
        network: The network, at its initial state.
        method: Made for it.
        train_set: Training examples, with augmentation if any.
        plain_set: The same examples without augmentation.
        learning_rate: Where the cosine schedule starts.
        settings: Of the run.
        accelerator: Device, precision and processes.
    """

    def __init__(
        self,
        network: nn.Module,
        method: Method,
        train_set: Dataset,
        plain_set: Dataset,
        learning_rate: float,
        settings: Settings,
        accelerator: Accelerator,
    ) -> None:
        self.network, self.method = network, method
        self.train_set, self.plain_set = train_set, plain_set
        self.learning_rate, self.settings, self.accelerator = learning_rate, settings, accelerator
        self.num_data = len(train_set)  # type: ignore[arg-type]
        self._parameters = list(method.parameters())
        self.optimizer = accelerator.prepare_optimizer(self._make_optimizer())
        self.step = 0
        self.history: list[dict[str, float]] = []
        self._epoch = {"nll": 0.0, "correct": 0.0, "examples": 0.0}

    def _make_optimizer(self) -> torch.optim.Optimizer:
        if self.settings.optimizer == "adamw":
            return torch.optim.AdamW(self._parameters, lr=self.learning_rate, weight_decay=0.0)
        momentum = self.settings.momentum
        return torch.optim.SGD(self._parameters, lr=self.learning_rate, momentum=momentum, nesterov=momentum > 0)

    def advance(self, until: int) -> Iterator[int]:
        """Train up to a step, yielding after each; stops early if the weights have diverged."""
        self.network.train()
        while self.step < min(until, self.settings.steps) and not self.diverged:
            self._one_step()
            yield self.step

    @property
    def diverged(self) -> bool:
        """Whether the loss has become infinite or undefined."""
        return not math.isfinite(self._epoch["nll"])

    def _one_step(self) -> None:
        settings, device = self.settings, self.accelerator.device
        seed_step(settings.seed, self.step)
        indices = indices_of_step(self.num_data, settings.batch_size, settings.seed, self.step)
        part = indices[self.accelerator.process_index :: self.accelerator.num_processes]
        inputs, labels = fetch(self.train_set, part, device)
        rate = 0.5 * self.learning_rate * (1 + math.cos(math.pi * self.step / settings.steps))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad()
        self.method.gradients(lambda: self._backward(inputs, labels), self._unscale)
        if settings.clip is not None:
            torch.nn.utils.clip_grad_norm_(self._parameters, settings.clip)
        self.optimizer.step()
        self.step += 1
        if self.step % steps_per_epoch(self.num_data, settings.batch_size) == 0 or self.step == settings.steps:
            self._record(rate)

    def _backward(self, inputs: Any, labels: Tensor) -> None:
        with self.accelerator.autocast():
            output = logits(self.network, inputs)
            loss = F.cross_entropy(output.float(), labels)
        self.accelerator.backward(loss)
        self._epoch["nll"] += float(loss.detach()) * len(labels)
        self._epoch["correct"] += float((output.detach().argmax(1) == labels).sum())
        self._epoch["examples"] += len(labels)

    def _unscale(self) -> None:
        self.accelerator.unscale_gradients(self.optimizer)  # where float16 scaled the loss

    def _record(self, rate: float) -> None:
        examples = self._epoch["examples"]
        self.history.append(
            {
                "learning_rate": self.learning_rate,
                "step": self.step,
                "epoch": self.step / steps_per_epoch(self.num_data, self.settings.batch_size),
                "rate": rate,
                "nll": self._epoch["nll"] / examples,
                "accuracy": self._epoch["correct"] / examples,
                **self.method.learned(),
            }
        )
        if math.isfinite(self._epoch["nll"]):
            self._epoch = dict.fromkeys(self._epoch, 0.0)

    # ---- the objective that chooses ----

    def value(self, keep_batch_norm: bool) -> float:
        """Estimate the training objective in eval mode on the plain training examples.

        Args:
            keep_batch_norm: Whether refreshed statistics stay in the network; else training goes on as if not asked.
        """
        if self.diverged:
            return -math.inf
        buffers = {name: b.clone() for name, b in self.network.named_buffers()}
        if self.settings.refresh_batch_norm:
            refresh_batch_norm(self.network, (inputs for inputs, _ in self._plain_batches()))
        value = self.method.value(self._log_likelihood, self.settings.samples)
        if not keep_batch_norm:
            for name, buffer in self.network.named_buffers():
                buffer.copy_(buffers[name])
        return value if math.isfinite(value) else -math.inf

    def _plain_batches(self) -> Iterator[tuple[Any, Tensor]]:
        return in_order(self.plain_set, self.settings.batch_size, self.accelerator.device)

    @torch.no_grad()
    def _log_likelihood(self) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for inputs, labels in self._plain_batches():
            with self.accelerator.autocast():
                output = logits(self.network, inputs)
            total -= F.cross_entropy(output.float(), labels, reduction="sum").double().cpu()
        return total

    # ---- states ----

    def state(self) -> State:
        """Return copies of all that training needs to go on."""
        optimizer = self.optimizer.state_dict()["state"]
        tensors = {
            **{f"network.{name}": value for name, value in self.network.state_dict().items()},
            **{f"method.{name}": value for name, value in self.method.state_dict().items()},
            **{f"optimizer.{i}.{name}": v for i, s in optimizer.items() for name, v in s.items() if v is not None},
        }
        notes = {"step": self.step, "history": self.history, "epoch": self._epoch}
        return {name: tensor.detach().clone() for name, tensor in tensors.items()}, _copy(notes)

    def restore(self, state: State) -> None:
        """Go on from a state."""
        tensors, notes = state
        self.network.load_state_dict(_part(tensors, "network."))
        self.method.load_state_dict(_part(tensors, "method."))
        optimizer = self.optimizer.state_dict()
        optimizer["state"] = {}
        for name, value in _part(tensors, "optimizer.").items():
            index, key = name.split(".", 1)
            optimizer["state"].setdefault(int(index), {})[key] = value
        self.optimizer.load_state_dict(optimizer)
        notes = _copy(notes)
        self.step, self.history, self._epoch = notes["step"], notes["history"], notes["epoch"]


MakeCandidate = Callable[[float], Candidate]


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _copy(notes: dict[str, Any]) -> dict[str, Any]:
    return {**notes, "history": [dict(row) for row in notes["history"]], "epoch": dict(notes["epoch"])}
