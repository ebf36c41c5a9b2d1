"""`collect`: SGD on a source task, with snapshots of the weights that give its posterior."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from deelbo import events
from deelbo._files import read_tensors, write_tensors
from deelbo._head import Head, split_head
from deelbo._interrupt import DeferredInterrupt
from deelbo._modules import trainable, unwrap
from deelbo._seeds import own_randomness, seed_step
from deelbo.errors import DivergedError
from deelbo.likelihoods import Categorical, Likelihood
from deelbo.priors import SourcePosterior
from deelbo.swag.moments import Moments
from deelbo.training.batch_norm import refresh_batch_norm
from deelbo.training.batches import network_output, split_labels, to_device

Loss = Callable[[nn.Module, Any], Tensor]


def likelihood_loss(likelihood: Likelihood) -> Loss:
    """Return the mean negative log-likelihood of a batch of pairs (input, label), or of a dictionary with "labels"."""

    def loss(model: nn.Module, batch: Any) -> Tensor:
        inputs, labels = split_labels(batch)
        device = next(model.parameters()).device
        output = network_output(model, to_device(inputs, device))
        return likelihood(output, torch.as_tensor(labels).to(device))

    return loss


def collect(
    model: nn.Module,
    loader: Iterable[Any],
    loss: Loss | None = None,
    *,
    likelihood: Likelihood | None = None,
    head: Head = None,
    steps: int = 2000,
    burn_in: int | None = None,
    every: int | None = None,
    rank: int = 20,
    learning_rate: float = 0.01,
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    dtype: torch.dtype | None = None,
    keep_on: torch.device | str | None = None,
    seed: int = 0,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 60.0,
    about: dict[str, Any] | None = None,
    listener: events.Listener = events.ignore,
) -> SourcePosterior:
    """Train a network on a source task and return a Gaussian fitted to the path of its backbone's weights (SWAG).

    In the end the backbone has the mean weights, with batch-normalisation statistics that belong to them, and the head
    has the last weights of SGD.

    Args:
        model: A network, pretrained or not, on its device.
        loader: Batches of the source task, such as a `DataLoader`; read again and again.
        loss: Function of the model and a batch, supervised or not; the likelihood's mean loss if None.
        likelihood: Likelihood of the labels; its own parameters (a noise) are trained as well. Categorical if None.
        head: Name of the classifier, which is trained but not part of the posterior; an empty tuple if there is none,
            found automatically in most networks if None.
        steps: Number of steps of SGD, at a constant learning rate.
        burn_in: Number of steps before the first snapshot; half of all steps if None.
        every: Number of steps between two snapshots; a fortieth of the steps after the burn-in if None.
        rank: Number of deviations to keep, the last ones.
        learning_rate: Constant learning rate, large enough that the weights move around an optimum.
        momentum: Momentum of SGD.
        weight_decay: Weight decay of SGD.
        dtype: Data type of the deviations; torch.bfloat16 halves their memory.
        keep_on: Device of the moments, such as "cpu" to spare a GPU's memory.
        seed: Seed of everything random in a step, such as augmentation.
        checkpoint: A file from which an interrupted collection continues, with the same snapshots if what is random in
            the loader comes from PyTorch's global generator (as in `DataLoader`). It stays until you delete it.
        checkpoint_seconds: Seconds between two checkpoints.
        about: Further facts that must be the same to continue, such as a hash of the data; kept in the result's notes.
        listener: Called with a `SourceStepTaken` after each step.

    Raises:
        ValueError: If a setting is wrong, or the checkpoint is of other settings.
        DivergedError: If the loss becomes infinite or undefined.
    """
    burn_in = steps // 2 if burn_in is None else burn_in
    every = max(1, (steps - burn_in) // 40) if every is None else every
    if not 0 <= burn_in < steps or every < 1 or burn_in + 2 * every > steps:
        raise ValueError(f"steps={steps}, burn_in={burn_in}, every={every}: fewer than two snapshots would be taken")
    if iter(loader) is loader:
        raise ValueError("this loader can be read only once; a DataLoader or a list can be read again and again")
    if not learning_rate > 0:
        raise ValueError(f"learning_rate={learning_rate} must be positive")
    likelihood = (likelihood or Categorical()).to(next(model.parameters()).device)
    loss = loss or likelihood_loss(likelihood)
    backbone = _backbone(model, head)
    moments = Moments(backbone, rank, dtype, keep_on)
    trained = [*(p for p in model.parameters() if p.requires_grad), *likelihood.parameters()]
    optimizer = torch.optim.SGD(trained, lr=learning_rate, momentum=momentum, weight_decay=weight_decay)
    settings = {
        "steps": steps, "burn_in": burn_in, "every": every, "rank": rank, "learning_rate": learning_rate,
        "momentum": momentum, "weight_decay": weight_decay, "seed": seed, "dtype": str(dtype),
        "weights": sum(p.numel() for p in backbone.values()), **(about or {}),
    }  # fmt: skip
    path = None if checkpoint is None else Path(checkpoint)
    run = _Run(model, likelihood, optimizer, moments, settings=settings, path=path)
    (step, position), saved = run.resume(), time.monotonic()
    with own_randomness(next(model.parameters()).device):
        batches = _Stream(loader, seed, step, position)
        model.train()
        with DeferredInterrupt(insistent=True) as interrupt:
            for now in range(step, steps):
                batch = next(batches)
                optimizer.zero_grad()
                value = loss(model, batch)
                if not math.isfinite(value.item()):
                    raise DivergedError(
                        f"the loss became {value.item()} in step {now + 1}; try a smaller learning rate"
                    )
                value.backward()
                optimizer.step()
                if now + 1 > burn_in and (now + 1 - burn_in) % every == 0:
                    moments.update()
                    if not all(bool(mean.isfinite().all()) for mean in moments.mean.values()):
                        raise DivergedError(f"a weight is not finite after step {now + 1}; try a smaller learning rate")
                listener(events.SourceStepTaken(now + 1, steps, value.item(), moments.number))
                if interrupt.requested or time.monotonic() - saved > checkpoint_seconds or now + 1 == steps:
                    run.save(now + 1, batches.position)
                    saved = time.monotonic()
                if interrupt.requested:
                    raise KeyboardInterrupt
        return _finish(model, moments, backbone, _Stream(loader, seed, 0, 0), loss=loss, settings=settings)


def _backbone(model: nn.Module, head: Head) -> dict[str, nn.Parameter]:
    """Return the weights that the posterior covers; all trainable weights if the head is an empty tuple."""
    if head is not None and not isinstance(head, str) and not tuple(head):
        return trainable(model)
    return split_head(model, head)[0]


class _Stream:
    """Batches without end; what is random in a batch, and in the step after it, is a function of seed and step.

    Args:
        loader: Batches of an epoch, in an object that can be read again and again.
        seed: Seed of everything random.
        step: Number of the step that the next batch is for.
        position: Position of the next batch in its epoch; earlier batches were used before an interruption.
    """

    def __init__(self, loader: Iterable[Any], seed: int, step: int, position: int) -> None:
        self.loader, self.seed, self.step, self.position = loader, seed, step, 0
        self._begin(step - position)
        for earlier in range(position):
            self._draw(step - position + earlier)

    def _begin(self, step: int) -> None:
        seed_step(self.seed, step)  # some loaders draw their order here, others with the first batch
        self._batches, self.position = iter(self.loader), 0

    def _draw(self, step: int) -> Any:
        seed_step(self.seed, step)
        batch = next(self._batches)
        self.position += 1
        return batch

    def __next__(self) -> Any:
        try:
            batch = self._draw(self.step)
        except StopIteration:
            self._begin(self.step)
            try:
                batch = self._draw(self.step)
            except StopIteration:
                raise ValueError("the loader has no batches") from None
        self.step += 1
        return batch


class _Run:
    """The checkpoint of a collection: all that an interrupted one needs to continue."""

    def __init__(
        self,
        model: nn.Module,
        likelihood: Likelihood,
        optimizer: torch.optim.Optimizer,
        moments: Moments,
        *,
        settings: dict[str, Any],
        path: Path | None,
    ) -> None:
        self.model, self.likelihood, self.optimizer, self.moments = model, likelihood, optimizer, moments
        self.settings, self.path = settings, path

    def save(self, step: int, position: int) -> None:
        """Write the checkpoint."""
        if self.path is None:
            return
        buffers = self.optimizer.state_dict()["state"]
        tensors = {
            **{f"network.{name}": value for name, value in self.model.state_dict().items()},
            **{f"moments.{name}": value for name, value in self.moments.state_dict().items()},
            **{f"likelihood.{name}": value for name, value in self.likelihood.state_dict().items()},
            **{
                f"optimizer.{i}": s["momentum_buffer"]
                for i, s in buffers.items()
                if s.get("momentum_buffer") is not None
            },
        }
        write_tensors(self.path, tensors, {"step": step, "place": position, "settings": self.settings})

    def resume(self) -> tuple[int, int]:
        """Load the checkpoint, if there is one, and return its step and its position in the epoch."""
        if self.path is None or not self.path.exists():
            return 0, 0
        tensors, notes = read_tensors(self.path)
        if not isinstance(notes, dict) or "settings" not in notes:
            raise ValueError(f"{self.path} is no checkpoint of a source posterior")
        stored = notes["settings"]
        if differences := [f"{n}: {stored.get(n)!r} -> {v!r}" for n, v in self.settings.items() if stored.get(n) != v]:
            hint = "delete it to begin anew, or choose another name"
            raise ValueError(f"{self.path} is a checkpoint of other settings ({hint}): " + "; ".join(differences))

        def part(prefix: str) -> dict[str, Tensor]:
            return {n.removeprefix(prefix): v for n, v in tensors.items() if n.startswith(prefix)}

        self.model.load_state_dict(part("network."))
        self.moments.load_state_dict(part("moments."))
        self.likelihood.load_state_dict(part("likelihood."))
        state = self.optimizer.state_dict()
        state["state"] = {int(i): {"momentum_buffer": value.clone()} for i, value in part("optimizer.").items()}
        self.optimizer.load_state_dict(state)
        return int(notes["step"]), int(notes["place"])


def _finish(
    model: nn.Module,
    moments: Moments,
    backbone: dict[str, nn.Parameter],
    batches: _Stream,
    *,
    loss: Loss,
    settings: dict[str, Any],
) -> SourcePosterior:
    """Set the backbone to the mean, estimate its batch-normalisation statistics there, and return the posterior."""
    if moments.rank >= moments.number:
        warnings.warn(f"{moments.number} snapshots have fewer than rank={moments.rank} deviations", stacklevel=3)
    with torch.no_grad():
        for name, parameter in backbone.items():
            parameter.copy_(moments.mean[name])

    def forward(network: nn.Module, batch: Any) -> None:
        with torch.enable_grad():  # for losses that compute gradients
            loss(network, batch)

    refresh_batch_norm(model, (next(batches) for _ in range(min(settings["steps"], 100))), forward)
    model.eval()
    buffers = {name: b.detach().cpu().clone() for name, b in unwrap(model).named_buffers()}
    parts = (moments.mean, moments.variance(), moments.deviations())
    mean, variance, deviations = ({name: value.cpu() for name, value in part.items()} for part in parts)
    notes = {"settings": settings, "snapshots": moments.number}
    return SourcePosterior(mean, variance, deviations, buffers, notes)
