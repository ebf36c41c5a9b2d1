"""What a source of models is asked, and what it gives: a network that knows how to read its inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from deelbo.data.examples import Examples, check_classes
from deelbo.data.images import ImageFormat, ImageSet, ImageStore, normalized
from deelbo.data.texts import TextSet

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Request:
    """A network wanted; the arguments are those of `load_model`, with the name after the prefix."""

    spec: str
    name: str
    kind: str
    classes: list[str]
    pretrained: bool
    image_size: int | None
    folder: Path | None


@dataclass
class LoadedModel:
    """A network, its classes, and what it expects of images or texts.

    Args:
        network: With a classifier for the classes.
        kind: "image" or "text".
        image: Size and normalisation, of a network for images.
        tokenizer: Of a network for texts.
        files: Whose `save_pretrained` writes what the architecture cannot be made without, besides the weights.
        spec: Which model it is; `load_model` makes it again from this.
        classes: Names of the labels.
        max_length: Tokens of a text at most.
        bad: Names of the inputs that were skipped because they cannot be read.
    """

    network: nn.Module
    kind: str
    image: ImageFormat | None = None
    tokenizer: Any = None
    files: tuple[Any, ...] = ()
    spec: str = ""
    classes: list[str] = field(default_factory=list)
    max_length: int = 512
    bad: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.kind == "image":  # convolutions on the CPU are almost twice as fast in this layout
            self.network.to(memory_format=torch.channels_last)

    def training_sets(
        self, examples: Examples, skip_bad: bool = False, progress: Progress | None = None, flip: bool = True
    ) -> tuple[ImageSet | TextSet, ImageSet | TextSet]:
        """Return the training set with augmentation, and the same examples without.

        Args:
            examples: Decoded or tokenised here, once.
            skip_bad: Leave unreadable images out.
            progress: Called with (done, total).
            flip: Whether a mirrored image is an image of the same class.

        Raises:
            ValueError: If an image cannot be read.
        """
        if self.image is None:
            texts = TextSet(examples, self.tokenizer, self.max_length)
            return texts, texts
        store = self._store(examples, skip_bad, progress)
        check_classes(store.examples, self.classes)  # some may have lost all their images
        self.image = normalized(self.image, store)
        return ImageSet(store, self.image, augment=True, flip=flip), ImageSet(store, self.image)

    def dataset(
        self, examples: Examples, skip_bad: bool = False, progress: Progress | None = None
    ) -> ImageSet | TextSet:
        """Return examples to predict or to test on; the arguments are those of `training_sets`."""
        if self.image is None:
            return TextSet(examples, self.tokenizer, self.max_length)
        return ImageSet(self._store(examples, skip_bad, progress), self.image)

    def unlabelled(self, sources: Sequence[Any]) -> ImageSet | TextSet:
        """Return paths, images or texts to predict on."""
        return self.dataset(Examples(list(sources), [0] * len(sources), [str(source) for source in sources]))

    def _store(self, examples: Examples, skip_bad: bool, progress: Progress | None) -> ImageStore:
        assert self.image is not None
        store = ImageStore(examples, self.image, skip_bad, progress)
        self.bad += store.bad
        return store

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for `run.json`."""
        reads = {"max_length": self.max_length} if self.image is None else {"image": self.image.as_dict()}
        return {"spec": self.spec, "kind": self.kind, "classes": self.classes, **reads}

    def write_files(self, folder: Path) -> None:
        """Write configuration and tokenizer, of a model that has some."""
        for each in self.files:
            each.save_pretrained(folder)
