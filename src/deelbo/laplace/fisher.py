"""The diagonal of the empirical Fisher information, from the gradient of every single example."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from deelbo._modules import unwrap
from deelbo.training.batches import Inputs, logits

MEMORY = 2**30  # bytes for the gradients of the examples that are computed at once

Loss = Callable[[Tensor, Tensor], Tensor]


def empirical_fisher(
    network: nn.Module,
    weights: Sequence[nn.Parameter],
    batches: Iterable[tuple[Inputs, Tensor]],
    loss: Loss = F.cross_entropy,
    memory: int = MEMORY,
) -> list[Tensor]:
    r"""Return F_d = sum_n ( d log p(y_n | x_n, theta) / d theta_d )^2, in eval mode, so that examples are independent.

    Several examples at once by `torch.func`, as many as the memory allows; a network that `vmap` cannot follow (such as
    one that looks at its attention mask) is run on one example after the other, which is as fast on a CPU.

    Args:
        network: Any network that gives logits, bare or wrapped for data parallelism. Its modes are left as they were.
        weights: Parameters of it.
        batches: Inputs and labels.
        loss: -log p(y | output) of a batch of one.
        memory: Bytes for the gradients of examples at once.

    Returns:
        One tensor for each weight, of the same shape.
    """
    bare = unwrap(network)
    names = {id(parameter): name for name, parameter in bare.named_parameters()}
    chosen = {names[id(weight)]: weight for weight in weights}
    size = sum(weight.numel() * weight.element_size() for weight in weights)
    total = {name: torch.zeros_like(weight, requires_grad=False) for name, weight in chosen.items()}
    together = max(1, memory // max(1, 2 * size))
    modes = {module: module.training for module in bare.modules()}
    bare.eval()
    try:
        for inputs, labels in batches:
            start = 0
            while start < len(labels):
                part = _take(inputs, start, together), labels[start : start + together]
                if together > 1 and not _add_together(bare, chosen, *part, loss, total):
                    together = 1
                    continue
                if together == 1:
                    _add_one(bare, chosen, *part, loss, total)
                start += together
    finally:
        for module, training in modes.items():
            module.training = training
    return list(total.values())


def _add_together(
    network: nn.Module,
    weights: Mapping[str, nn.Parameter],
    inputs: Inputs,
    labels: Tensor,
    loss: Loss,
    total: Mapping[str, Tensor],
) -> bool:
    """Add the squares of several examples' gradients; False if `vmap` cannot follow the network."""

    def of_one(values: dict[str, Tensor], one: Inputs, label: Tensor) -> Tensor:
        if isinstance(one, dict):
            output = functional_call(network, values, (), {name: value[None] for name, value in one.items()})
        else:
            output = functional_call(network, values, (one[None],))
        return loss(output if isinstance(output, Tensor) else output.logits, label[None])

    try:
        with warnings.catch_warnings(), torch.no_grad():  # nothing else needs a graph
            warnings.simplefilter("ignore")  # of operations that vmap runs one by one
            values = {name: weight.detach() for name, weight in weights.items()}
            gradients = vmap(grad(of_one), in_dims=(None, 0, 0))(values, inputs, labels)
    except (RuntimeError, NotImplementedError, ValueError, TypeError):
        return False  # what is wrong with the network itself, running it on one example will say
    for name, gradient in gradients.items():
        total[name].add_(gradient.square().sum(0))  # not in place: gradients may share memory
    return True


def _add_one(
    network: nn.Module,
    weights: Mapping[str, nn.Parameter],
    inputs: Inputs,
    labels: Tensor,
    loss: Loss,
    total: Mapping[str, Tensor],
) -> None:
    """Add the squares of one example's gradients."""
    with torch.enable_grad():
        value = loss(logits(network, inputs), labels)
        gradients = torch.autograd.grad(value, list(weights.values()), allow_unused=True)
    for name, gradient in zip(weights, gradients, strict=True):
        if gradient is not None:
            total[name].addcmul_(gradient, gradient)


def _take(inputs: Inputs, start: int, number: int) -> Inputs:
    if isinstance(inputs, dict):
        return {name: value[start : start + number] for name, value in inputs.items()}
    return inputs[start : start + number]
