"""Specifications of data and model, as a user gives them; jobs and comparisons read and load by these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from deelbo.data import Data, load_data
from deelbo.models import InputReader, load_model

Spec = TypeVar("Spec", "DataSpec", "ModelSpec")


def spec_of_run(kind: type[Spec], about: Mapping[str, Any]) -> Spec:
    """Return the specification that a run was made with, from the facts about it in `run.json`.

    Args:
        kind: `DataSpec` or `ModelSpec`.
        about: Facts about the run.
    """
    return kind(**{field.name: about[field.name] for field in fields(kind) if field.name in about})


@dataclass(frozen=True)
class DataSpec:
    """Specification of the data and of how they are read.

    Args:
        data: A folder of images, a table of texts, or a name such as cifar10; see `load_data`.
        data_dir: Folder where a named dataset is, or is downloaded to.
        text_column: Name of the column that holds the text.
        label_column: Name of the column that holds the label, or several names separated by commas.
        task: "classification", "regression" or "multilabel"; recognised from the labels if None.
        train_size: Number of training examples to use, a random subset by class; None for all.
        per_class: Number of training examples of each class to use, a random subset; None for all, or `train_size`.
        test_fraction: Share of the data to hold out for testing; None to hold none out.
        flip: Whether to mirror images at random in training.
        skip_bad: Whether to leave unreadable images and incomplete rows out instead of refusing them.
    """

    data: str
    data_dir: str | None = None
    text_column: str = "text"
    label_column: str = "label"
    task: str | None = None
    train_size: int | None = None
    per_class: int | None = None
    test_fraction: float | None = None
    flip: bool = True
    skip_bad: bool = False

    def read(self) -> Data:
        """Read all examples, before any subset is taken.

        Raises:
            FileNotFoundError: If there are no such data.
            ValueError: If they cannot be read.
        """
        return load_data(
            self.data,
            data_dir=self.data_dir,
            text_column=self.text_column,
            label_column=self.label_column,
            task=self.task,
            skip_bad=self.skip_bad,
        )

    def check_outside(self, out: Path) -> None:
        """Refuse an output folder among the images: the next command would read it as a class, or part of one.

        Raises:
            ValueError: If the output folder is inside the folder of images.
        """
        data = Path(self.data)
        classes = [data / part for part in ("train", "test")] if (data / "train").is_dir() else [data]
        if data.is_dir() and any(out.resolve().is_relative_to(folder.resolve()) for folder in classes):
            raise ValueError(f"out={out} is among the data in {data}; choose a folder outside")


@dataclass(frozen=True)
class ModelSpec:
    """Specification of the model and of how it is loaded.

    Args:
        model: Name of the model with its source, such as `timm:resnet50`; see `load_model`.
        weights: Local safetensors file or state dict instead of the pretrained weights.
        head: Name of the classifier; found automatically in most networks if None.
        image_size: Height and width of images in pixels; the network's own if None.
        max_length: Number of tokens of a text at most; None for what the network takes, and at most 512.
        pooling: How a text's tokens become one vector: "mean", "first", "last", "max" or "own"; what the model itself
            says if None.
        resize: How images are resized before cropping: "shorter-side" keeps their shape, "square" squashes them.
        normalize: Whose mean and standard deviation images get: "network" (the training set's, if the network has none)
            or "training-set".
    """

    model: str
    weights: str | None = None
    head: str | None = None
    image_size: int | None = None
    max_length: int | None = None
    pooling: str | None = None
    resize: str = "shorter-side"
    normalize: str = "network"

    def load(self, data: Data, seed: int) -> tuple[nn.Module, InputReader]:
        """Return the network for some data at its initial state, and the reader of its inputs.

        Args:
            data: Examples with the kind of inputs and the targets that the network must fit.
            seed: Seed of the new classifier's weights.
        """
        torch.default_generator.manual_seed(seed)
        return load_model(
            self.model,
            data.kind,
            data.targets,
            weights=self.weights,
            image_size=self.image_size,
            max_length=self.max_length,
            pooling=self.pooling,
            resize=self.resize,
            normalize=self.normalize,
        )
