"""The posterior of a source task, from which the prior PTYL is made, and its file."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import Tensor, nn

from deelbo._files import write_tensors
from deelbo._head import Head, split_head
from deelbo._modules import unwrap
from deelbo._wording import some_of

SCHEMA = 1


@dataclass
class SourcePosterior:
    """N(mean, 1/2 (diag(variance) + Q Q^T / (K - 1))) over the backbone's weights, by name.

    Args:
        mean: Mean of each weight, by name.
        variance: Variance of each weight, by name.
        deviations: The K columns of Q as rows, [K, ...] of each weight; the first are the newest.
        buffers: The network's buffers at the mean, such as batch-normalisation statistics.
        notes: Facts about how the posterior was made, such as its settings.
    """

    mean: dict[str, Tensor]
    variance: dict[str, Tensor]
    deviations: dict[str, Tensor]
    buffers: dict[str, Tensor] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def rank(self) -> int:
        """K, the number of deviations."""
        return len(next(iter(self.deviations.values())))

    def save(self, path: str | Path) -> None:
        """Write a safetensors file.

        Args:
            path: Path of a new file.

        Raises:
            FileExistsError: If the file exists already.
        """
        if Path(path).exists():
            raise FileExistsError(f"{path} exists already; choose another name")
        parts = {"mean": self.mean, "variance": self.variance, "deviations": self.deviations, "buffer": self.buffers}
        tensors = {f"{part}.{name}": value for part, values in parts.items() for name, value in values.items()}
        write_tensors(Path(path), tensors, {**self.notes, "kind": "source posterior", "schema": SCHEMA})

    def sample(self, seed: int | None = None) -> dict[str, Tensor]:
        """Draw backbone weights: mean + sqrt(variance/2) z + Q z' / sqrt(2 (K - 1)).

        Args:
            seed: Seed of the draw; PyTorch's global generator if None.
        """
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        shared = torch.randn(self.rank, generator=generator) / math.sqrt(2 * max(self.rank - 1, 1))
        draw = {}
        for name, mean in self.mean.items():
            noise = torch.randn(mean.shape, generator=generator, dtype=mean.dtype)
            rows = self.deviations[name].to(mean.dtype)
            draw[name] = mean + (self.variance[name].clamp(min=0) / 2).sqrt() * noise
            draw[name] += torch.tensordot(shared.to(mean.dtype), rows, 1)
        return draw

    def start(self, model: nn.Module, head: Head = None) -> None:
        """Set a network's backbone to the mean, with the buffers that belong to it; the classifier stays as it is.

        Args:
            model: A network of the source task's architecture.
            head: Name of the classifier; found automatically in most networks if None.

        Raises:
            ValueError: If the network is not the source task's.
        """
        self.check(model, head)
        network = unwrap(model)
        with torch.no_grad():
            for name, parameter in split_head(model, head)[0].items():
                parameter.copy_(self.mean[name])
            for name, buffer in network.named_buffers():
                if name in self.buffers and self.buffers[name].shape == buffer.shape:
                    buffer.copy_(self.buffers[name])

    def flat(self, part: str, names: Sequence[str], rows: int | None = None) -> Tensor:
        """Return mean, variance or deviations of some weights as one vector (or one row for each deviation).

        Args:
            part: "mean", "variance" or "deviations".
            names: Names of the weights, in the order of the vector.
            rows: Number of deviations to take, the newest ones.
        """
        values = getattr(self, part)
        parts = [values[n].flatten() if rows is None else values[n][:rows].flatten(1) for n in names]
        return torch.cat([value.float() if value.dtype.itemsize < 4 else value for value in parts], -1)

    def check(self, model: nn.Module, head: Head = None) -> None:
        """Raise an error unless the network has the architecture of the source task's.

        Args:
            model: The network.
            head: Name of the classifier.

        Raises:
            ValueError: If names or shapes of the backbone's weights differ; the message names the first of them.
        """
        needed = {name: list(p.shape) for name, p in split_head(model, head)[0].items()}
        stored = {name: list(mean.shape) for name, mean in self.mean.items()}
        lists = {
            "missing": sorted(set(needed) - set(stored)),
            "unknown": sorted(set(stored) - set(needed)),
            "other shape": [f"{n} {stored[n]} instead of {v}" for n, v in needed.items() if stored.get(n, v) != v],
            "damaged": [n for n, shape in stored.items() if not self._whole(n, shape)],
        }
        problems = [f"{what} {some_of(names)}" for what, names in lists.items() if names]
        if problems:
            network = type(unwrap(model)).__name__
            raise ValueError(f"the source posterior is of another network than {network}: {'; '.join(problems)}")

    def _whole(self, name: str, shape: list[int]) -> bool:
        variance, rows = self.variance.get(name), self.deviations.get(name)
        if variance is None or rows is None:
            return False
        return list(variance.shape) == shape and list(rows.shape) == [self.rank, *shape]


def check_source_file(path: str | Path) -> None:
    """Raise an error for a path that cannot be a file of `SourcePosterior.save`.

    Raises:
        FileNotFoundError: If there is no file.
        ValueError: If it is one of the released files, which must be converted first.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"no source posterior at {path}; `deelbo prior` makes one")
    if Path(path).suffix == ".pt":
        raise ValueError(f"{path} is a released file: convert it by `deelbo prior` with released=NAME and model=SPEC")


def load_source_posterior(path: str | Path, rank: int | None = None) -> SourcePosterior:
    """Read a file that `SourcePosterior.save` wrote.

    Args:
        path: Path of the file.
        rank: Number of deviations to read, the newest ones; all if None, or if there are fewer.

    Raises:
        FileNotFoundError: If there is no file.
        ValueError: If the file is damaged, or no source posterior.
    """
    check_source_file(path)
    parts: dict[str, dict[str, Tensor]] = {part: {} for part in ("mean", "variance", "deviations", "buffer")}
    try:
        with safetensors.safe_open(path, "pt") as file:
            notes = json.loads((file.metadata() or {}).get("notes", "null"))
            if not isinstance(notes, dict) or notes.get("kind") != "source posterior":
                raise ValueError(f"{path} holds something else than a source posterior; `deelbo prior` makes one")
            if notes["schema"] > SCHEMA:
                raise ValueError(f"{path} was written by a newer deelbo")
            for name in file.keys():  # noqa: SIM118 - no mapping
                part, _, rest = name.partition(".")
                limited = part == "deviations" and rank is not None
                parts[part][rest] = file.get_slice(name)[:rank] if limited else file.get_tensor(name)
    except (safetensors.SafetensorError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    return SourcePosterior(parts["mean"], parts["variance"], parts["deviations"], parts["buffer"], notes)
