"""Which parameters of a network are random under q, and where the means of their distribution are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from deelbo import _shards
from deelbo._modules import check_memory, check_replicated, select, trainable
from deelbo.posteriors.masters import Masters


@dataclass(frozen=True)
class RandomWeights:
    """The trainable parameters of a network, sorted by what a posterior does with them.

    Args:
        points: Parameters that are learned as point estimates, by name.
        own: The network's random parameters, which hold draws.
        masters: Means of those that are bfloat16.
        means: Means of all random parameters: the parameters themselves, or their masters.
        random: Random parameters that are their own means.
        mesh: Processes that share the weights in shards, if they do.
    """

    points: dict[str, nn.Parameter]
    own: dict[str, nn.Parameter]
    masters: Masters
    means: dict[str, nn.Parameter]
    random: list[nn.Parameter]
    mesh: Any

    @classmethod
    def of(cls, model: nn.Module, deterministic: Iterable[str]) -> RandomWeights:
        """Sort the parameters of a network.

        Args:
            model: The network: bare, compiled, or wrapped for data parallelism.
            deterministic: Names (or prefixes) of the parameters that are learned as point estimates.

        Raises:
            ValueError: If no parameter is left, a name matches none, or noise cannot be added to a weight.
        """
        check_replicated(model)
        everything = trainable(model, bfloat16=True)
        prefixes = [deterministic] if isinstance(deterministic, str) else list(deterministic)
        for prefix in prefixes:
            if not select(everything, [prefix]):
                raise ValueError(f'deterministic "{prefix}" names no trainable parameter of {type(model).__name__}')
        chosen = set(select(everything, prefixes))
        points = {name: p for name, p in everything.items() if name in chosen}
        own = {name: p for name, p in everything.items() if name not in chosen}
        if not own:
            raise ValueError("every trainable parameter is deterministic, so q would be empty: name fewer of them")
        check_memory(own)
        half = {name: p for name, p in own.items() if p.dtype == torch.bfloat16}
        masters = Masters(half, alone=len(half) == len(own))
        _check_points(points)
        mesh = _shards.mesh_of(model, everything)
        if mesh is not None and half:
            raise ValueError(
                f'parameter "{next(iter(half))}" is bfloat16 and sharded: shard float32 weights, with '
                "MixedPrecisionPolicy(param_dtype=torch.bfloat16)"
            )
        means = {**own, **dict(zip(half, masters.means, strict=True))}
        return cls(points, own, masters, means, [p for name, p in own.items() if name not in half], mesh)

    def check(self, model: nn.Module) -> None:
        """Raise an error if the network's trainable parameters are no longer these.

        Raises:
            RuntimeError: If a parameter was replaced, frozen, unfrozen, or given another precision.
        """
        current = trainable(model, bfloat16=True)
        for name, parameter in self.own.items():
            if current.get(name) is not parameter:
                change = "replaced" if parameter.requires_grad else "frozen"
                raise RuntimeError(f'parameter "{name}" was {change} after the posterior was made: make a new one')
            if (parameter.dtype == torch.bfloat16) != (self.means[name] is not parameter):
                dtype = str(parameter.dtype).removeprefix("torch.")
                raise RuntimeError(f'parameter "{name}" became {dtype} after the posterior was made: make a new one')
        if new := sorted(current.keys() - self.means.keys() - self.points.keys()):
            raise RuntimeError(f'parameter "{new[0]}" became trainable after the posterior was made: make a new one')


def _check_points(points: Mapping[str, nn.Parameter]) -> None:
    """Refuse deterministic parameters in bfloat16, in which small steps of the optimizer would vanish."""
    for name, parameter in points.items():
        if parameter.dtype == torch.bfloat16:
            raise ValueError(
                f'deterministic parameter "{name}" is bfloat16, in which small steps vanish: make it float32, with '
                "parameter.data = parameter.data.float()"
            )
