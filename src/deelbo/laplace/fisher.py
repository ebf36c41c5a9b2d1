"""The diagonal of the empirical Fisher information, from the gradients of single examples."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from deelbo._modules import eval_mode, unwrap
from deelbo.likelihoods import Categorical, Likelihood
from deelbo.training.batches import Inputs, network_output

MEMORY = 2**30  # bytes for the gradients of the examples that are processed at once


def empirical_fisher(
    network: nn.Module,
    weights: Sequence[nn.Parameter],
    batches: Iterable[tuple[Inputs, Tensor]],
    likelihood: Likelihood | None = None,
    memory: int = MEMORY,
) -> list[Tensor]:
    r"""Return F_d = sum_n ( d log p(y_n | x_n, theta) / d theta_d )^2, in eval mode, so that examples are independent.

    `torch.func` processes several examples at once, as many as the memory allows. A network that `vmap` cannot handle
    (such as one whose control flow depends on its attention mask) is run on single examples, as fast as this on a CPU.

    Args:
        network: Network that returns logits, bare or wrapped for data parallelism. Its train or eval mode is kept.
        weights: Parameters of the network whose Fisher information is wanted.
        batches: Batches of inputs and targets.
        likelihood: Likelihood of the targets; categorical (classes) if None.
        memory: Bytes for the gradients of the examples that are processed at once.

    Returns:
        The diagonal of the Fisher information, one tensor for each weight, of the same shape.

    Example:
        >>> import torch
        >>> from deelbo.laplace import empirical_fisher
        >>> model = torch.nn.Linear(4, 3)
        >>> x, y = torch.randn(10, 4), torch.randint(3, (10,))
        >>> fisher = empirical_fisher(model, list(model.parameters()), [(x[:5], y[:5]), (x[5:], y[5:])])
        >>> [list(f.shape) for f in fisher]
        [[3, 4], [3]]
        >>> all(bool((f >= 0).all()) for f in fisher)
        True
    """
    bare = unwrap(network)
    squares = _Squares(bare, weights, likelihood or Categorical())
    together = max(1, memory // max(1, 2 * sum(weight.numel() * weight.element_size() for weight in weights)))
    with eval_mode(bare):
        for inputs, labels in batches:
            start = 0
            while start < len(labels):
                part = _take(inputs, start, together), labels[start : start + together]
                if together > 1 and not squares.add_together(*part):
                    together = 1
                    continue
                if together == 1:
                    squares.add_one(*part)
                start += together
    return list(squares.total.values())


class _Squares:
    """The sum of the squared gradients of single examples."""

    def __init__(self, network: nn.Module, weights: Sequence[nn.Parameter], likelihood: Likelihood) -> None:
        names = {id(parameter): name for name, parameter in network.named_parameters()}
        self.weights = {names[id(weight)]: weight for weight in weights}
        self.total = {name: torch.zeros_like(weight, requires_grad=False) for name, weight in self.weights.items()}
        self.network, self.likelihood = network, likelihood

    def add_together(self, inputs: Inputs, labels: Tensor) -> bool:
        """Add the squared gradients of several examples at once; return False if `vmap` cannot handle the network."""
        try:
            with warnings.catch_warnings(), torch.no_grad():  # nothing else needs a graph
                warnings.simplefilter("ignore")  # about operations that vmap runs one by one
                values = {name: weight.detach() for name, weight in self.weights.items()}
                gradients = vmap(grad(self._loss_of_one), in_dims=(None, 0, 0))(values, inputs, labels)
        except (RuntimeError, NotImplementedError, ValueError, TypeError):
            return False  # an error of the network itself is raised again by add_one()
        for name, gradient in gradients.items():
            self.total[name].add_(gradient.square().sum(0))  # not in place: gradients may share memory
        return True

    def _loss_of_one(self, values: dict[str, Tensor], one: Inputs, label: Tensor) -> Tensor:
        if isinstance(one, dict):
            output = functional_call(self.network, values, (), {name: value[None] for name, value in one.items()})
        else:
            output = functional_call(self.network, values, (one[None],))
        return self.likelihood(output if isinstance(output, Tensor) else output.logits, label[None])

    def add_one(self, inputs: Inputs, labels: Tensor) -> None:
        """Add the squared gradient of one example, given as a batch of one."""
        with torch.enable_grad():
            value = self.likelihood(network_output(self.network, inputs), labels)
            gradients = torch.autograd.grad(value, list(self.weights.values()), allow_unused=True)
        for total, gradient in zip(self.total.values(), gradients, strict=True):
            if gradient is not None:
                total.addcmul_(gradient, gradient)


def _take(inputs: Inputs, start: int, number: int) -> Inputs:
    if isinstance(inputs, dict):
        return {name: value[start : start + number] for name, value in inputs.items()}
    return inputs[start : start + number]
