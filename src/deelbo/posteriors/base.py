"""Base class of the Gaussian posteriors: how a draw of the weights begins and ends.

Outside a `sample()` block the network's parameters hold the mean of q; inside they hold a draw, written in place,
so any module works. During a draw the means are stored in a copy (`saved_means.py`), and the noise is recovered as
draw - mean, so this takes the memory of one extra copy of the weights. The means of bfloat16 weights are in float32 at
all times, and are not the network's parameters but beside them (`masters.py`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from deelbo import _distributed, _shards
from deelbo._registry import Registry
from deelbo._seeds import mix
from deelbo._shard_noise import ShardNoise
from deelbo._weight_passes import grad_chunks, on_device
from deelbo.posteriors.embeddings import LazyEmbedding
from deelbo.posteriors.saved_means import SavedMeans
from deelbo.posteriors.stationary import Curvature, VarianceLines, stationary_square
from deelbo.posteriors.weights import RandomWeights

if TYPE_CHECKING:
    from deelbo.attachment import Attachment
    from deelbo.priors.gaussian import PriorGroup


SCALE_UPDATES = ("closed-form", "gradient")
POSTERIORS: Registry[type[GaussianPosterior]] = Registry("posterior", "deelbo.posteriors")


def inverse_softplus(value: float) -> float:
    """Return u with softplus(u) = value, accurate also for tiny values.

    Raises:
        ValueError: If the value is not between 1e-30 and 1e30, outside of which float32 would fail.
    """
    if not 1e-30 < value < 1e30:
        raise ValueError(f"a scale must be positive, between 1e-30 and 1e30, not {value}")
    return value + math.log(-math.expm1(-value))


class GaussianPosterior(nn.Module, ABC):
    """A Gaussian q over the trainable parameters of a network; see `IsotropicPosterior` and `DiagonalPosterior`.

    Args:
        model: Network whose trainable parameters become random: bare, compiled, or wrapped for data parallelism.
        init_scale: Initial standard deviation of q; the default is the paper's value for fine-tuning.
        deterministic: Names (or prefixes) of parameters that are learned as point estimates instead of getting a
            distribution, such as hyperparameters of a likelihood or a kernel inside the network.
        seed: Seed for the random draws; taken from PyTorch's global generator if None.
        synchronize: Whether data-parallel processes use the same draws, as they must under DDP.
        scale_update: "closed-form", in which the objective sets the scale (of several scales, their common factor), or
            "gradient", in which the optimizer learns it.

    Raises:
        ValueError: If `scale_update` is something else, no parameter is trainable, a name in `deterministic` matches
            none, a parameter of these is bfloat16, or noise cannot be added to a weight (float16, shared memory,
            FSDP1).
    """

    numbers_per_weight: ClassVar[int] = 1  # how many numbers are learned for each weight

    def __init__(
        self,
        model: nn.Module,
        init_scale: float = 1e-4,
        deterministic: Iterable[str] = (),
        seed: int | None = None,
        synchronize: bool = True,
        *,
        scale_update: str = "gradient",
    ) -> None:
        if scale_update not in SCALE_UPDATES:
            raise ValueError(f"scale_update={scale_update!r}, but it is one of {', '.join(SCALE_UPDATES)}")
        super().__init__()
        self.scale_update = scale_update
        self.curvature = Curvature()
        self._model = (model,)  # in a tuple, so that the network does not become a part of this module
        self._chosen = chosen = RandomWeights.of(model, deterministic)
        self._points, self._own, self._means, self._random = chosen.points, chosen.own, chosen.means, chosen.random
        self.masters, self._mesh = chosen.masters, chosen.mesh
        self._shard_noise = None if self._mesh is None else ShardNoise(self._random)
        if seed is not None and not 0 <= seed < 2**63:
            raise ValueError(f"seed must be from 0 to 2**63 - 1, not {seed}")
        self.seed = int(torch.randint(2**62, ())) if seed is None else seed
        self.draws = 0  # number of draws so far
        self._synchronize = synchronize
        self._agreed = False  # whether the data-parallel processes have the same seed and number of draws
        self._open: int | None = None  # key of the draw that the weights hold
        self._swapped = False  # inside at_mean(): the weights hold the means, `_saved` holds the draw
        self._tracking = False  # whether to collect the gradients of this draw
        self.attachment: Attachment | None = None  # the hooks of objective.attach(), if any
        self.collected = False  # whether a draw has given gradients since objective.backward()
        self.finished = False  # whether objective.backward() has been called since the last draw
        self._marks: list[tuple[int, int] | None] = []  # state of the gradients when the draw began
        self._saved = SavedMeans(self._random)  # of the weights that a draw gives noise at once
        self._lazy: list[LazyEmbedding] = []  # whose rows get noise when they are used, if a subclass wants it
        self._make_scale(inverse_softplus(init_scale))

    @property
    def model(self) -> nn.Module:
        """The network that was passed to the constructor."""
        return self._model[0]

    @property
    def means(self) -> dict[str, nn.Parameter]:
        """The means of q by name: the network's random parameters outside a draw, masters of bfloat16 ones always."""
        return dict(self._means)

    @property
    def network_weights(self) -> list[nn.Parameter]:
        """The network's random parameters, which hold the draw."""
        return [*self._random, *self.masters.weights]

    @property
    def num_params(self) -> int:
        """D, the number of random weights; a complex weight counts as two."""
        return sum(p.numel() * (2 if p.is_complex() else 1) for p in self._means.values())

    @property
    def device(self) -> torch.device:
        """Device of the first random weight."""
        return next(iter(self._means.values())).device

    @property
    def scale_in_closed_form(self) -> bool:
        """Whether the scale is set by the objective; else the optimizer moves it."""
        return False

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Parameter]]:
        """Iterate over all parameters to optimize: means, deterministic parameters and the unconstrained scale."""
        for name, parameter in {**self._means, **self._points}.items():
            yield f"{prefix}.{name}" if prefix else name, parameter
        means = {id(p) for p in self.masters.means}
        yield from (
            pair for pair in super().named_parameters(prefix, recurse, remove_duplicate) if id(pair[1]) not in means
        )

    def scale_parameters(self) -> list[nn.Parameter]:
        """Return the parameters of the unconstrained scale, which `model.parameters()` does not include."""
        modules = [module for module in self.modules() if module is not self.masters]
        return [p for module in modules for p in module._parameters.values() if p is not None]

    def get_extra_state(self) -> Tensor:
        """Return seed, number of draws and average curvature, for `state_dict`; the network's own has the means."""
        average, magnitude, steps = self.curvature.state()
        bits = torch.tensor([average, magnitude], dtype=torch.float64).view(torch.int64)
        return torch.cat([torch.tensor([self.seed, self.draws]), bits, torch.tensor([steps])])

    def set_extra_state(self, state: Tensor) -> None:
        """Restore seed, number of draws and average curvature from a `state_dict`."""
        self.seed, self.draws = state[:2].tolist()
        if len(state) > 2:  # not in an older state of a diagonal posterior
            average, magnitude = state[2:4].cpu().view(torch.float64).tolist()
            self.curvature = Curvature(average, magnitude, int(state[4]))

    # ---- drawing ----

    @property
    def key(self) -> int | None:
        """Key (a hashed seed) of the draw that the weights hold; None outside a draw."""
        return self._open

    @property
    def sampling(self) -> bool:
        """Whether the weights currently hold a draw instead of the means."""
        return self._open is not None

    @contextmanager
    def sample(self, seed: int | None = None) -> Iterator[None]:
        """Let the network's weights be a draw from q inside the block; afterwards they are the mean again, bit for bit.

        Call `loss.backward()` inside. At the end of the block, the gradient of the loss with respect to the scale is
        added to the scale's `.grad`. Gradients of several blocks, or of several backward passes in one, add up.

        Args:
            seed: Seed for this draw alone, which does not affect later draws; None for the next random draw.

        Raises:
            RuntimeError: If the block is nested, or the network was changed after the posterior was made.
        """
        if self.attachment is not None:
            self.attachment.pause()  # its pending backward pass, if there is one, writes its draw again
        if self.sampling:
            raise RuntimeError("posterior.sample() blocks cannot be nested: leave the outer block first")
        # Without gradients nothing in the block depends on the draw after it, so a graph from before stays valid.
        unseen = self.unseen_by_autograd()
        with nullcontext() if torch.is_grad_enabled() else unseen:
            try:
                self.begin(self.next_key() if seed is None else mix(seed))
                versions = self.weight_versions()
                yield
                if versions != self.weight_versions():
                    raise RuntimeError(
                        "the weights were changed inside the posterior.sample() block, and the change is lost: "
                        "call optimizer.step() after the block"
                    )
            finally:
                self.end()

    def next_key(self) -> int:
        """Return the key of the next random draw, and count it."""
        if not self._agreed and self._communicates():
            self.seed, self.draws = _distributed.broadcast_integers([self.seed, self.draws], *self._channel())
            self._agreed = True
        key = mix(self.seed, self.draws)
        self.draws += 1
        return key

    def begin(self, key: int, track: bool | None = None) -> None:
        """Write a draw into the weights, until `end()`; prefer `sample()`, which calls both.

        Args:
            key: Key of the draw; the same key gives the same noise.
            track: Whether backward passes follow, whose gradients count; if None, whether gradients are enabled.
        """
        self._tracking = torch.is_grad_enabled() if track is None else track
        lazy = self._lazy_embeddings()
        skipped = {id(embedding.weight) for embedding in lazy}
        self._saved.weights = [p for p in self._random if id(p) not in skipped] if lazy else self._random
        self._check_weights()
        weights, saved = self._saved.chunks()
        torch.clear_autocast_cache()  # or an autocast block around this one would go on with the old weights
        self._saved.kept = bytearray(len(weights))
        self._open = key
        try:
            self._perturb(key, weights, saved, self._saved.kept)
            if self._tracking:
                self.masters.absorb(anew=self.finished)
            self._marks = self.gradient_marks()
            if self._tracking:
                self._start_scale_gradient(weights, saved)
            for embedding in lazy:
                embedding.begin(key, self.typical_scale)
        except BaseException:
            self._tracking = False
            self.end()
            raise

    def _lazy_embeddings(self) -> list[LazyEmbedding]:
        """Return the embeddings whose rows get noise when they are used: in training, on the CPU, in one process."""
        if not self._tracking or not self._lazy or on_device(self._random[0]) or _distributed.active():
            return []
        return [embedding for embedding in self._lazy if embedding.usable]

    def _start_scale_gradient(self, weights: list[Tensor], saved: list[Tensor]) -> None:
        scales = self.scale_parameters()
        fresh = self.finished or not any(self._marks)
        for raw in scales:  # of a new step, or one that a GradScaler has skipped: what model.zero_grad() does not clear
            if fresh:
                raw.grad = None
            elif raw.grad is not None:
                raw.grad.masked_fill_(~raw.grad.isfinite().all(), 0)
        if not fresh:
            # What was accumulated before this draw is not its gradient: subtract now what end() will add.
            self._collect(-1.0, weights, saved, restore=False)
        self.finished = False

    def gradient_marks(self) -> list[tuple[int, int] | None]:
        """Return identity and version of each gradient, which change whenever a gradient is accumulated."""
        unreduced = [grad for _, grad in self._unreduced_gradients()]
        grads = [*(p.grad for p in (*self.network_weights, *self.masters.means)), *unreduced]
        return [None if grad is None else (id(grad), _shards.version(grad)) for grad in grads]

    def weight_versions(self) -> list[Any]:
        """Return the version of each weight, which changes whenever the weight is changed in place."""
        return [_shards.version(p) for p in self.network_weights]

    def unseen_by_autograd(self) -> AbstractContextManager[None]:
        """Return a context in which changes of the weights do not count, so that a pending graph stays valid."""
        return torch.autograd._unsafe_preserve_version_counter(_shards.locals_and_wholes(self.network_weights))

    def _unreduced_gradients(self) -> list[tuple[Tensor, Tensor]]:
        return [] if self._mesh is None else _shards.unreduced_gradients(self.model)

    def end(self) -> None:
        """End a draw: write the means back, bit for bit, and add the gradient of the loss to the scale's `.grad`."""
        if not self.sampling:
            return
        if self._swapped:
            self._swap()
        restored = False
        try:
            marks = self.gradient_marks()
            if self._tracking and any(marks):
                self._collect(1.0, *self._saved.chunks(), restore=True)
                restored = True
                self.collected = self.collected or marks != self._marks
                self.masters.absorb()
        finally:
            try:
                self.masters.restore()
                for embedding in self._lazy:
                    embedding.restore()
                if not restored:
                    self._saved.restore()
            finally:  # the pass has finished, even if a Ctrl-C follows it
                self._open = None
                self._forget_copies()

    @contextmanager
    def at_mean(self) -> Iterator[None]:
        """Let the weights be the means inside the block; a draw that was begun before comes back afterwards."""
        outermost = self.sampling and not self._swapped
        if outermost:
            self._swap()
        try:
            yield
        finally:
            if outermost and self._swapped:
                self._swap()

    def at_draw(self) -> AbstractContextManager[None]:
        """Return a context in which `means` of bfloat16 weights are the draw too, before rounding; for densities."""
        return nullcontext()

    def _swap(self) -> None:
        # The draw is back before autograd looks again, so a pending backward pass stays valid.
        with self.unseen_by_autograd():
            try:
                self.masters.swap()
                self._saved.swap()
                for embedding in self._lazy:
                    embedding.swap()
            finally:  # the pass has finished, even if a Ctrl-C follows it
                self._swapped = not self._swapped
                self._forget_copies()
                if self._mesh is not None:
                    _shards.finish(self._random[0])

    def _forget_copies(self) -> None:
        """Forget what was made of weights that have changed: by autocast, and by FSDP, which gathers sharded ones."""
        torch.clear_autocast_cache()
        if self._mesh is not None:
            _shards.reshard(self.model)

    def average_scale_gradient(self) -> None:
        """Average the gradient of the scale over the data-parallel processes."""
        if self._communicates():
            for raw in self.scale_parameters():
                if raw.grad is not None:
                    _distributed.average_(raw.grad, *self._channel())

    def _communicates(self) -> bool:
        """Return whether processes agree on draws and scale: those that share weights must."""
        return self._mesh is not None or (self._synchronize and _distributed.active())

    def _channel(self) -> tuple[torch.device, Sequence[Any]]:
        """Return the device of messages to other processes, and the groups of these."""
        return (self.device, [None]) if self._mesh is None else (self._mesh.device, self._mesh.groups)

    def _check_weights(self) -> None:
        """Check that the weights are still the network's trainable parameters, and follow them if they have moved."""
        self._chosen.check(self.model)
        self._saved.make_room()
        self.masters.follow()

    def _grads(self) -> list[Tensor | None]:
        return grad_chunks(self._saved.weights, create=False)

    # ---- implemented by subclasses ----

    @abstractmethod
    def _make_scale(self, raw: float) -> None:
        """Register the unconstrained scale as parameters of this module, with the initial value `raw`."""

    @property
    @abstractmethod
    def square(self) -> Tensor:
        """The typical scale squared, on the device of the weights."""

    @property
    def typical_scale(self) -> float:
        """The scale as one number: the geometric mean, if there are several."""
        return math.sqrt(float(self.square))

    @abstractmethod
    def multiply_scale(self, factor: float) -> None:
        """Multiply the scale of every weight with a number."""

    @abstractmethod
    def _perturb(self, key: int, weights: list[Tensor], saved: list[Tensor], kept: bytearray) -> None:
        """Copy the means to `saved`, set `kept` to 1 for each copied chunk, and add noise to the weights."""

    @abstractmethod
    def _collect(self, sign: float, weights: list[Tensor], saved: list[Tensor], restore: bool) -> None:
        """Add sign * d loss / d scale to the gradient of the scale, and write the means back if `restore`."""

    @abstractmethod
    def log_prob(self) -> Tensor:
        """Return log q(theta) at the current weights."""

    @abstractmethod
    def log_det(self, group: PriorGroup) -> float:
        """Return log det S, where S is the covariance of q over the weights of the group."""

    @abstractmethod
    def trace(self, group: PriorGroup) -> float:
        """Return tr(Sigma_g^-1 S), where S is the covariance of q over the weights of the group."""

    @abstractmethod
    def unit_traces(self, groups: Sequence[PriorGroup]) -> list[float]:
        """Return tr(Sigma_g^-1 S) of each group as it would be if `typical_scale` were 1."""

    @abstractmethod
    def update_scale(self, lines: VarianceLines, emphasis: float, loss_scale: float | Tensor) -> None:
        """Set the scale, or the common factor of several, to where the objective is stationary in it.

        Args:
            lines: The best prior variances as functions of the squared scale.
            emphasis: kappa N.
            loss_scale: Factor by which the gradients are multiplied at this time.
        """

    def _stationary_square(self, square: Tensor, slope: Tensor, lines: VarianceLines, emphasis: float) -> Tensor:
        """Return the stationary value of the squared scale, near its present one.

        Args:
            square: The present value.
            slope: h, the slope of the loss in scale^2, from the gradients of this step.
            lines: The best prior variances as functions of the squared scale.
            emphasis: kappa N.
        """
        finite = self.curvature.add(slope)
        found = stationary_square(square, lines, emphasis * self.curvature.average)
        return torch.where(finite, found, square)  # unchanged in a step that a GradScaler will skip

    @abstractmethod
    def add_kl_gradient(self, groups: Iterable[PriorGroup], weight: float | Tensor) -> None:
        """Add weight * d KL / d scale to the gradient of the scale."""
