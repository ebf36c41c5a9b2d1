"""What a user has for a reproduction: a scale, data, weights, a machine, and a folder for the results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from deelbo import events
from deelbo.compare import Records
from deelbo.compare.engines import ENGINES, Engine
from deelbo.reproduce.scales import DATASETS, LAPTOP, Scale
from deelbo.specs import DataSpec, ModelSpec

PRIORS = {"L2-zero": "l2-zero", "L2-SP": "l2-sp"}  # those of the paper that need no file


class MissingDataError(ValueError):
    """None of the data that an entry needs were named."""


def announce_nothing(text: str) -> None:
    """Say nothing about the progress."""


@dataclass(frozen=True)
class Setup:
    """All that a reproduction is made with.

    Args:
        out: Folder for the results, the records of runs and the networks that are kept.
        scale: Networks, sizes, grids and lengths.
        data: Folder of each dataset that the user has, by the name in `DATASETS`; None instead of a folder for one to
            be found in, or downloaded to, `data_dir`.
        data_dir: Folder where named datasets are, or are downloaded to.
        models: Models instead of the scale's, by the kind of the inputs, such as {"image": "timm:resnet18"}.
        precision: Mixed precision of the compared runs, by the kind of the inputs, such as {"text": "bf16"}; float32 if
            not given. Networks that are looked into (Fig. 1, B.7, B.8, `diagonal`) are always trained in float32.
        source_posteriors: Files of the priors PTYL, by their names in the paper.
        seed: Seed of the random features of Case Study A.
        engine: Engine that makes the runs: "local" or "ray".
        jobs: Number of runs at a time of the local engine.
        ray_address: Address of a running Ray cluster; None to start one on this machine.
        cpus: Number of cores for each run of the Ray engine.
        gpus: Number of GPUs for each run of the Ray engine.
        device: "cpu" to stay off the GPU; accelerate's choice if None.
        announce: Called with a line about each part of the work when it begins.
        listener: Called with the events of the training runs.
    """

    out: Path
    scale: Scale = LAPTOP
    data: Mapping[str, Path | None] = field(default_factory=dict)
    data_dir: Path | None = None
    models: Mapping[str, str] = field(default_factory=dict)
    precision: Mapping[str, str] = field(default_factory=dict)
    source_posteriors: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0
    engine: str = "local"
    jobs: int = 1
    ray_address: str | None = None
    cpus: float = 1
    gpus: float = 0
    device: str | None = None
    announce: Callable[[str], None] = announce_nothing
    listener: events.Listener = events.ignore

    @property
    def records(self) -> Records:
        """The records of single runs, which all entries share."""
        return Records(self.out / "records")

    def data_spec(self, dataset: str) -> DataSpec:
        """Return the specification of a dataset that the user has.

        Raises:
            MissingDataError: If the user has not named it.
        """
        if dataset not in self.data:
            raise MissingDataError(f"{DATASETS[dataset].title} is missing: data={dataset}=FOLDER says where it is")
        folder = self.data[dataset]
        if folder is not None:
            return DataSpec(str(folder.absolute()))
        return DataSpec(DATASETS[dataset].named, None if self.data_dir is None else str(self.data_dir.absolute()))

    def precision_of(self, kind: str) -> str:
        """Return the precision of compared runs with one kind of inputs, "image" or "text"."""
        return self.precision.get(kind, "no")

    def model_spec(self, network: str, kind: str) -> ModelSpec:
        """Return the model that stands for a network of the paper.

        Args:
            network: Name of the network in the paper.
            kind: Kind of its inputs, "image" or "text".
        """
        spec = self.scale.models[network]
        return replace(spec, model=self.models[kind]) if kind in self.models else spec

    def prior(self, title: str) -> str | None:
        """Return a prior of the paper as `Settings` names it; None if it needs a file that the user has not given."""
        if title in PRIORS:
            return PRIORS[title]
        file = self.source_posteriors.get(title)
        return None if file is None else f"ptyl:{Path(file).absolute()}"

    def make_engine(self) -> Engine:
        """Return the engine that makes the runs of a comparison."""
        resources: dict[str, Any] = {
            "ray_address": self.ray_address,
            "cpus": self.cpus,
            "gpus": self.gpus,
            "jobs": self.jobs,
        }
        self.out.mkdir(parents=True, exist_ok=True)
        return ENGINES[self.engine](self.records.folder, device=self.device, log=self.out / "workers.log", **resources)


def find_data(given: str, scale: Scale) -> tuple[dict[str, Path | None], Path | None]:
    """Return the datasets that a user names, and the folder where named ones are.

    Args:
        given: A folder that has folders with the names of `DATASETS`; or NAME=FOLDER, several separated by commas.
            At the scale "paper" a folder is where `load_data` finds datasets by name, or downloads them to.
        scale: The scale.

    Raises:
        ValueError: If a name is unknown.
        FileNotFoundError: If there is no such folder, or, at the scale "laptop", no dataset in it.
    """
    if "=" in given:
        pairs = dict(part.split("=", 1) for part in given.split(",") if "=" in part)
        for name, folder in pairs.items():
            if name not in DATASETS:
                raise ValueError(f"data={name}=..., but the datasets are {', '.join(DATASETS)}")
            if not Path(folder).exists():
                raise FileNotFoundError(f"data={name}={folder}: no such folder")
        return {name: Path(folder) for name, folder in pairs.items()}, None
    parent = Path(given)
    if not parent.is_dir():
        raise FileNotFoundError(f"data={given}: no such folder")
    if scale.name == "paper":
        return dict.fromkeys(DATASETS), parent
    found: dict[str, Path | None] = {name: parent / name for name in DATASETS if (parent / name).is_dir()}
    if not found:
        raise FileNotFoundError(f"data={given} has none of the folders {', '.join(DATASETS)}")
    return found, None
