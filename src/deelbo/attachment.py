"""Hooks that make an existing training loop optimize the objective, without a change to the loop."""

from __future__ import annotations

import dataclasses
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from deelbo import _shards
from deelbo._attached_optimizers import bare_optimizer, check_optimizer, join, leave, lift
from deelbo._modules import unwrap

if TYPE_CHECKING:
    from deelbo.objective import DataEmphasizedELBO

KEY = "deelbo"  # name of the objective's state in the state of the optimizer


class Attachment:
    """Handle that `objective.attach(optimizer)` returns; until `remove()` is called, hooks work as follows.

    - A forward pass in train mode with gradients enabled draws weights from q, unless an earlier draw is still waiting
      for its backward pass. Forward passes in eval mode, or without gradients, use the means.
    - The end of the backward pass writes the means back, so a skipped optimizer step, an evaluation or a checkpoint
      never sees noisy weights. A second backward pass through the same graph uses the same draw again. PyTorch calls no
      hook after a Ctrl-C in the forward pass or an exception in the backward pass: then the means come back with the
      next call of the network, `state_dict()`, `load_state_dict()`, `optimizer.step()` or `remove()`.
    - `optimizer.step()` first updates the prior variances, adds the gradient of KL / (kappa N) and clips the sum; with
      `optimizer.step(closure)`, as Lightning calls it, all this comes after the closure.
    - `optimizer.state_dict()` has the objective's state under "deelbo", and `optimizer.load_state_dict()` restores it:
      what saves and loads the optimizer resumes the scale, the variances, the draws and the prior's mean as well.

    The scale is added to the optimizer's first parameter group without weight decay, so that its learning-rate schedule
    applies to the scale as well. If it is learned by gradient and the groups have different learning rates, it gets a
    group of its own with the largest of them. In the place of bfloat16 weights the optimizer gets their masters.

    Args:
        objective: Objective to optimize.
        optimizer: Optimizer of the training loop; it must have all the weights of the posterior.
        max_norm: Largest norm of the whole gradient, with the KL's part, which is clipped at it; None for no limit.

    Raises:
        ValueError: If the optimizer cannot be attached (`_attached_optimizers.py`), lacks some of the weights, or
            `max_norm` is not positive.
        RuntimeError: If the network is attached already.
    """

    def __init__(
        self, objective: DataEmphasizedELBO, optimizer: torch.optim.Optimizer, max_norm: float | None = None
    ) -> None:
        if max_norm is not None and not max_norm > 0:
            raise ValueError(f"max_norm={max_norm}, but it must be positive; None for no limit")
        optimizer = bare_optimizer(optimizer)
        self.objective, self.posterior, self.optimizer = objective, objective.posterior, optimizer
        self.max_norm = max_norm
        if unwrap(self.posterior.model) in _attached:
            raise RuntimeError("the network is attached already: call remove() of the earlier handle first")
        check_optimizer(optimizer, self._held())
        self._lifted = lift(optimizer, self.posterior.masters.weights, self.posterior.masters.means)
        self._joined = join(optimizer, self.posterior.scale_parameters(), not self.posterior.scale_in_closed_form)
        self._key: int | None = None  # key of the draw of the latest training forward pass
        self._backward_pass: int | None = None  # id of the backward pass at whose end the means come back
        self._marks: list[tuple[int, int] | None] = []  # state of the gradients when the draw began
        self._versions: list[Any] = []  # state of the weights when the draw began
        self._stepped, self._unseen = False, 0  # whether the hook of step() was called; changes of the weights without
        self._mean_in_place: AbstractContextManager[None] | None = (
            None  # entered during an evaluation between a draw and its backward pass
        )
        self._sharded = any(_shards.is_sharded(p) for p in self.posterior.means.values())
        self._handles = self._register()
        self.posterior.attachment = self
        _attached.add(unwrap(self.posterior.model))

    def remove(self) -> None:
        """Remove the hooks, write the means back, and take the scale out of the optimizer again."""
        if not self._handles:
            return
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._leave_mean()
        if self._drawn:
            self.posterior.end()  # seen by autograd, so that a pending backward pass fails
        self.posterior.attachment = None
        _attached.discard(unwrap(self.posterior.model))
        leave(self.optimizer, self._joined)
        lift(self.optimizer, [master for _, master in self._lifted], [weight for weight, _ in self._lifted])

    def _held(self) -> dict[str, nn.Parameter]:
        """Return the weights as an optimizer has them: masters only if it was made with `posterior.parameters()`."""
        present = {id(p) for group in getattr(self.optimizer, "param_groups", []) for p in group["params"]}
        own = dict(unwrap(self.posterior.model).named_parameters())
        return {name: mean if id(mean) in present else own[name] for name, mean in self.posterior.means.items()}

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        """Return None, so that a copy of the posterior is not attached."""

    # ---- hooks ----

    def _register(self) -> list[Any]:
        model, members = self.posterior.model, set(unwrap(self.posterior.model).modules())

        @torch.compiler.disable
        def before_forward(module: nn.Module, args: Any) -> None:
            if module is model:
                self._before_forward(module)

        @torch.compiler.disable
        def after_forward(module: nn.Module, args: Any, output: Any) -> None:
            if module is model:
                self._after_forward(module, output)

        def on_state_dict(module: nn.Module, *args: Any) -> None:
            if module in members:
                self.pause()

        def before_loading_weights(module: nn.Module, *args: Any) -> None:
            on_state_dict(module)
            self._versions.clear()

        @torch.compiler.disable
        def before_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
            return self._before_step(args, kwargs)

        def after_saving(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
            state[KEY] = {name: value.detach().clone() for name, value in self.objective.state_dict().items()}

        def before_loading(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> dict[str, Any]:
            if KEY in state:
                self.objective.load_state_dict(state[KEY])
            elif _count(state) < _count({"param_groups": optimizer.param_groups}):
                raise ValueError(
                    "this state was saved by a loop without deelbo, so scale and variances are not in it: load the "
                    "weights alone, and start the training anew"
                )
            return {name: value for name, value in state.items() if name != KEY}

        return [
            # Before FSDP's own hook, which gathers the weights.
            model.register_forward_pre_hook(_Hook(before_forward), prepend=self._sharded),
            model.register_forward_hook(_Hook(after_forward), always_call=True),
            *(module.register_state_dict_pre_hook(_Hook(on_state_dict)) for module in members),
            unwrap(model).register_load_state_dict_pre_hook(_Hook(before_loading_weights)),
            self.optimizer.register_step_pre_hook(before_step),
            self.optimizer.register_state_dict_post_hook(after_saving),
            self.optimizer.register_load_state_dict_pre_hook(before_loading),
        ]

    @property
    def _drawn(self) -> bool:
        """Whether the weights hold a draw that these hooks made, not one of the user's own `sample()` blocks."""
        return self.posterior.sampling and self.posterior.key == self._key

    def _before_forward(self, model: nn.Module) -> None:
        self._handled = sys.exc_info()[1]  # exception of an except block around the training loop
        self._leave_mean()
        if _in_backward():
            return  # a recomputation under activation checkpointing, whose draw is in place
        if model.training and torch.is_grad_enabled():
            if not self.posterior.sampling:
                self._check_that_step_was_seen()
                self._begin(self.posterior.next_key())
        elif self._drawn:
            self._mean_in_place = self.posterior.at_mean()
            self._mean_in_place.__enter__()

    def _after_forward(self, model: nn.Module, output: Any) -> None:
        if self._mean_in_place is not None:
            self._leave_mean()
        elif self._drawn and model.training and torch.is_grad_enabled() and not _in_backward():
            if sys.exc_info()[1] is not self._handled:  # the forward pass failed
                self.pause()
                return
            for tensor in _tensors(output):
                if tensor.requires_grad and not tensor.is_leaf:  # a parameter in the output would keep the hook
                    tensor.register_hook(self._on_gradient(self.posterior.key))

    def _on_gradient(self, key: int | None) -> Callable[[Tensor], None]:
        """Return a hook to run when a backward pass reaches an output of the forward pass under this draw."""

        def hook(grad: Tensor) -> None:
            if not self._handles or key is None:
                return
            if not self.posterior.sampling:
                if self._sharded:  # FSDP has gathered the means for this pass already
                    raise RuntimeError("sharded weights (FSDP2) do not support a second backward pass through a graph")
                self._begin(key)  # a second backward pass
            elif self.posterior.key != key:
                raise RuntimeError(
                    "this backward pass belongs to an earlier draw of the weights than the current one: "
                    "call backward() before the next training forward pass"
                )
            task = torch._C._current_graph_task_id()
            if task != self._backward_pass:
                self._backward_pass = task
                queue = torch.autograd.Variable._execution_engine.queue_callback
                queue(lambda: queue(self._after_backward))  # queued twice, to run after DDP has reduced the gradients

        return hook

    def _check_that_step_was_seen(self) -> None:
        """Refuse a loop whose steps pass the hook by; twice, because SAM moves the weights once before each step."""
        if self._stepped or not self.posterior.collected or not self._versions:
            return
        self._unseen += self._versions != self._current_versions()
        if self._unseen > 1:
            raise RuntimeError(
                f"the weights are updated without a call of {type(self.optimizer).__name__}.step() that hooks could "
                "see, so the gradient of the KL would be missing: attach the optimizer that the loop steps, and "
                "capture or replace no part of its step()"
            )

    def _current_versions(self) -> list[Any]:
        return self.posterior.weight_versions()

    def _after_backward(self) -> None:
        if self._drawn and self._versions != self._current_versions():
            self.pause()
            raise RuntimeError(
                "the weights were changed between the forward pass and the end of the backward pass, and the change is "
                "lost: update them in optimizer.step() after it, not by hooks of the backward pass (as LOMO does)"
            )
        # torch.autograd.grad() inside the loss (a gradient penalty) keeps the draw for the backward pass that follows.
        if self._drawn and self.posterior.gradient_marks() != self._marks:
            self.pause()

    def _before_step(self, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        """Add the KL's gradient now, or replace a closure by one that does so at its end."""
        closure = kwargs.get("closure") or (args[1] if len(args) > 1 else None)  # the first is the optimizer
        if closure is None:
            self._finish_gradient()
            return None

        def closure_with_kl() -> Any:
            loss = closure()
            self._finish_gradient()
            return loss

        rest = {name: value for name, value in kwargs.items() if name != "closure"}
        return (args[0], closure_with_kl, *args[2:]), rest

    def _finish_gradient(self) -> None:
        self.pause()
        self._stepped = True
        if not self.posterior.collected:
            raise RuntimeError(
                "optimizer.step() without a backward pass through a training-mode call of the attached network: "
                "call the network itself (not its submodules or .forward), in train mode, and not as a whole under "
                "checkpoint(use_reentrant=True)"
            )
        # A fused optimizer unscales the gradients itself, so the KL's must have the GradScaler's scale too.
        grad_scale = getattr(self.optimizer, "grad_scale", None)
        loss_scale: float | Tensor = 1.0 if grad_scale is None else grad_scale
        self.objective.add_kl_gradient(loss_scale)
        if self.max_norm is not None:
            parameters = [p for group in self.optimizer.param_groups for p in group["params"] if p.grad is not None]
            clip = _shards.clip_grad_norm_ if self._sharded else nn.utils.clip_grad_norm_
            clip(parameters, float(self.max_norm * loss_scale))

    # ---- draws ----

    def _begin(self, key: int) -> None:
        self._key = key
        with self.posterior.unseen_by_autograd():
            self.posterior.begin(key, track=True)
        self._marks, self._versions = self.posterior.gradient_marks(), self._current_versions()

    def pause(self) -> None:
        """Write the means back now; a later backward pass through the same graph restores its draw."""
        self._leave_mean()
        if self._drawn:  # hidden from autograd, since a second backward pass will find the same draw again
            with self.posterior.unseen_by_autograd():
                self.posterior.end()

    def _leave_mean(self) -> None:
        if self._mean_in_place is not None:
            context, self._mean_in_place = self._mean_in_place, None
            context.__exit__(None, None, None)


_attached: weakref.WeakSet[nn.Module] = weakref.WeakSet()  # networks that are attached now


class _Hook:
    """A hook that is lost when the network is copied or pickled, so that an average of the weights has no hooks."""

    def __init__(self, function: Callable[..., None] | None = None) -> None:
        self.function = function

    def __call__(self, *args: Any) -> None:
        if self.function is not None:
            self.function(*args)

    def __deepcopy__(self, memo: dict[int, Any]) -> _Hook:
        return _Hook()

    def __reduce__(self) -> tuple[type[_Hook], tuple[()]]:
        return _Hook, ()


def _count(state: dict[str, Any]) -> int:
    return sum(len(group["params"]) for group in state["param_groups"])


def _in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1


def _tensors(output: Any) -> Iterator[Tensor]:
    """Yield the tensors in a network's output: nested tuples, lists, dictionaries, model outputs, dataclasses."""
    for leaf in tree_leaves(output):
        if isinstance(leaf, Tensor):
            yield leaf
        elif dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
            yield from _tensors([getattr(leaf, field.name) for field in dataclasses.fields(leaf)])
