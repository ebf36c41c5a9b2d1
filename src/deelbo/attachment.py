"""Training an existing loop on the objective by hooks, without a change to the loop."""

from __future__ import annotations

import dataclasses
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from deelbo._modules import unwrap

if TYPE_CHECKING:
    from deelbo.objective import DataEmphasizedELBO


class Attachment:
    """The handle of `objective.attach(optimizer)`.

    - A forward pass in train mode (with gradients enabled) draws weights from q, unless a draw is waiting for its
      backward pass already. Forward passes in eval mode, or without gradients, see the means.
    - The end of the backward pass puts the means back, so a skipped optimizer step, an evaluation or a checkpoint
      find no noise. A second backward pass through the same graph writes the same draw again. After a Ctrl-C in the
      forward pass, or an exception in the backward pass, of which PyTorch tells no hook, they come back with the next
      call of the network, `state_dict()`, `load_state_dict()`, `optimizer.step()` or `remove()`.
    - `optimizer.step()` first adds the gradient of KL / (kappa N) and updates the prior variances.

    The scale joins the optimizer's first parameter group without weight decay, so that existing schedules apply to it.

    Args:
        objective: What to train on.
        optimizer: The loop's optimizer, over all the weights of the posterior.

    Raises:
        ValueError: If the optimizer needs closures, or lacks some of the weights.
        RuntimeError: If the posterior is attached already.
    """

    def __init__(self, objective: DataEmphasizedELBO, optimizer: torch.optim.Optimizer) -> None:
        while isinstance(inner := getattr(optimizer, "optimizer", None), torch.optim.Optimizer):
            optimizer = inner  # accelerate wraps it
        self.objective, self.posterior, self.optimizer = objective, objective.posterior, optimizer
        if unwrap(self.posterior.model) in _attached:
            raise RuntimeError("the network is attached already: call remove() of that handle first")
        self._check_optimizer()
        self._joined = self._join_optimizer()
        self._key: int | None = None  # of the draw of the latest training forward pass
        self._backward_pass: int | None = None  # the one at whose end the means come back
        self._marks: list[tuple[int, int] | None] = []  # of the gradients when the draw began
        self._mean_in_place: AbstractContextManager[None] | None = None  # during an evaluation amid a draw
        self._handles = self._register()
        self.posterior.attachment = self
        _attached.add(unwrap(self.posterior.model))

    def remove(self) -> None:
        """Detach: the means are in place, and the network and the optimizer are as they were before."""
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
        joined = {id(p) for p in self._joined}
        for group in list(self.optimizer.param_groups):
            rest = [i for i, p in enumerate(group["params"]) if id(p) not in joined]
            if len(rest) == len(group["params"]):
                continue
            if not rest:  # a group that was made for the scale
                self.optimizer.param_groups.remove(group)
            for key in ("params", "param_names"):
                if key in group:
                    group[key] = [group[key][i] for i in rest]
        for parameter in self._joined:
            self.optimizer.state.pop(parameter, None)

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        """Leave a copy of the posterior unattached."""

    # ---- the optimizer ----

    def _check_optimizer(self) -> None:
        if isinstance(self.optimizer, torch.optim.LBFGS):
            raise ValueError("LBFGS evaluates its closure several times a step; attach an optimizer without closures")
        groups = {id(p): group for group in self.optimizer.param_groups for p in group["params"]}
        missing = [name for name, p in self.posterior.means.items() if id(p) not in groups]
        if missing:
            raise ValueError(
                f'the optimizer lacks {len(missing)} weights of the posterior, such as "{missing[0]}": '
                "give it all trainable parameters, or freeze these before making the posterior"
            )
        if any(groups[id(p)].get("weight_decay") for p in self.posterior.means.values()):
            warnings.warn(
                "the optimizer's weight decay regularises the weights a second time, beside the learned prior: "
                "set weight_decay=0",
                stacklevel=4,
            )

    def _join_optimizer(self) -> list[nn.Parameter]:
        """Give the scale to the optimizer; weight decay would pull it towards softplus(0) = 0.69, so never under it."""
        present = {id(p) for group in self.optimizer.param_groups for p in group["params"]}
        scale = [p for p in self.posterior.scale_parameters() if id(p) not in present]
        if not scale:
            return []
        names = [f"posterior.raw_scale.{i}" for i in range(len(scale))]
        group = next((g for g in self.optimizer.param_groups if not g.get("weight_decay")), None)
        if group is None:
            group = {**self.optimizer.param_groups[0], "params": list(scale), "weight_decay": 0.0}
            if "param_names" in group:
                group["param_names"] = names
            self.optimizer.param_groups.append(group)
            return scale
        group["params"].extend(scale)
        if "param_names" in group:
            group["param_names"].extend(names)
        return scale

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

        def before_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
            self._before_step(args, kwargs)

        return [
            model.register_forward_pre_hook(_Hook(before_forward)),
            model.register_forward_hook(_Hook(after_forward), always_call=True),
            *(module.register_state_dict_pre_hook(_Hook(on_state_dict)) for module in members),
            unwrap(model).register_load_state_dict_pre_hook(_Hook(on_state_dict)),
            self.optimizer.register_step_pre_hook(before_step),
        ]

    @property
    def _drawn(self) -> bool:
        """Whether the weights are a draw that these hooks made (and not a `sample()` block of the user's)."""
        return self.posterior.sampling and self.posterior.key == self._key

    def _before_forward(self, model: nn.Module) -> None:
        self._handled = sys.exc_info()[1]  # of an except block around the training loop
        self._leave_mean()
        if _in_backward():
            return  # a recomputation under activation checkpointing, whose draw is in place
        if model.training and torch.is_grad_enabled():
            if not self.posterior.sampling:
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
        """Return what runs when a backward pass reaches an output of the forward pass under this draw."""

        def hook(grad: Tensor) -> None:
            if not self._handles or key is None:
                return
            if not self.posterior.sampling:
                self._begin(key)  # a second backward pass
            elif self.posterior.key != key:
                raise RuntimeError("this backward pass belongs to an earlier draw of the weights than the one in place")
            task = torch._C._current_graph_task_id()
            if task != self._backward_pass:
                self._backward_pass = task
                queue = torch.autograd.Variable._execution_engine.queue_callback
                queue(lambda: queue(self._after_backward))  # in two steps, to come after DDP has its gradients

        return hook

    def _after_backward(self) -> None:
        # torch.autograd.grad() on the way to the loss (a gradient penalty) leaves the draw for the pass to come.
        if self._drawn and self.posterior.gradient_marks() != self._marks:
            self.pause()

    def _before_step(self, args: Any, kwargs: Any) -> None:
        if any(argument is not None for argument in (*args[1:], kwargs.get("closure"))):  # the first is the optimizer
            raise RuntimeError("optimizer.step(closure) is not supported by attach(): call backward(), then step()")
        self.pause()
        if not self.posterior.collected:
            raise RuntimeError(
                "optimizer.step() without a backward pass through a training-mode call of the attached network: "
                "call the network itself (not its submodules or .forward), in train mode, and not as a whole under "
                "checkpoint(use_reentrant=True)"
            )
        # A fused optimizer unscales by itself what a GradScaler has scaled, and the KL with it.
        loss_scale = getattr(self.optimizer, "grad_scale", None)
        self.objective.add_kl_gradient(1.0 if loss_scale is None else float(loss_scale))

    # ---- draws ----

    def _begin(self, key: int) -> None:
        self._key = key
        with torch.autograd._unsafe_preserve_version_counter(tuple(self.posterior.means.values())):
            self.posterior.begin(key, track=True)
        self._marks = self.posterior.gradient_marks()

    def pause(self) -> None:
        """Put the means back now; a backward pass to come writes its draw again."""
        self._leave_mean()
        if self._drawn:  # hidden from autograd, since a second backward pass will find the same draw again
            with torch.autograd._unsafe_preserve_version_counter(tuple(self.posterior.means.values())):
                self.posterior.end()

    def _leave_mean(self) -> None:
        if self._mean_in_place is not None:
            context, self._mean_in_place = self._mean_in_place, None
            context.__exit__(None, None, None)


_attached: weakref.WeakSet[nn.Module] = weakref.WeakSet()  # networks


class _Hook:
    """A hook that copies and pickles of the network do without: an average of the weights is a plain network."""

    def __init__(self, function: Callable[..., None] | None = None) -> None:
        self.function = function

    def __call__(self, *args: Any) -> None:
        if self.function is not None:
            self.function(*args)

    def __deepcopy__(self, memo: dict[int, Any]) -> _Hook:
        return _Hook()

    def __reduce__(self) -> tuple[type[_Hook], tuple[()]]:
        return _Hook, ()


def _in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1


def _tensors(output: Any) -> Iterator[Tensor]:
    """Find the tensors in a network's output: nested tuples, lists, dictionaries, model outputs, dataclasses."""
    for leaf in tree_leaves(output):
        if isinstance(leaf, Tensor):
            yield leaf
        elif dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
            yield from _tensors([getattr(leaf, field.name) for field in dataclasses.fields(leaf)])
