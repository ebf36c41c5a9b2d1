"""Readers that turn paths, images or texts into the datasets that a network is trained and tested on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deelbo.data.examples import Examples, check_classes
from deelbo.data.images import ImageFormat, ImageSet, ImageStore, normalized
from deelbo.data.targets import Targets
from deelbo.data.texts import TextSet

Progress = Callable[[int, int], None]


@dataclass
class InputReader:
    """Reads images or texts for one network, and knows what its outputs mean.

    Args:
        spec: Specification of the model; `load_model` makes the network again from it.
        kind: Kind of the inputs, "image" or "text".
        targets: What the network predicts.
        image: Size and normalisation of images, for a network that takes images.
        tokenizer: Tokenizer, for a network that takes texts.
        max_length: Number of tokens of a text at most.
        files: Objects with `save_pretrained` (configuration, tokenizer) that are needed to make the architecture again.
        bad: Names of the inputs that were skipped because they cannot be read.
    """

    spec: str
    kind: str
    targets: Targets
    image: ImageFormat | None = None
    tokenizer: Any = None
    max_length: int = 512
    files: tuple[Any, ...] = ()
    bad: list[str] = field(default_factory=list)

    def training_sets(
        self, examples: Examples, skip_bad: bool = False, progress: Progress | None = None, flip: bool = True
    ) -> tuple[ImageSet | TextSet, ImageSet | TextSet]:
        """Return the training set with augmentation, and the same examples without.

        Args:
            examples: Training examples, which are decoded or tokenised once, by this call.
            skip_bad: Whether to leave unreadable images out instead of refusing them.
            progress: Called after each image with (done, total).
            flip: Whether to mirror images at random.

        Raises:
            ValueError: If an image cannot be read.
        """
        if self.image is None:
            texts = TextSet(examples, self.tokenizer, self.max_length)
            return texts, texts
        store = self._store(examples, skip_bad, progress)
        check_classes(store.examples, self.targets)  # a class may have lost all its images
        self.image = normalized(self.image, store)
        return ImageSet(store, self.image, augment=True, flip=flip), ImageSet(store, self.image)

    def dataset(
        self, examples: Examples, skip_bad: bool = False, progress: Progress | None = None
    ) -> ImageSet | TextSet:
        """Return examples to predict or to test on.

        Args:
            examples: Examples, which are decoded or tokenised once, by this call.
            skip_bad: Whether to leave unreadable images out instead of refusing them.
            progress: Called after each image with (done, total).

        Raises:
            ValueError: If an image cannot be read.
        """
        if self.image is None:
            return TextSet(examples, self.tokenizer, self.max_length)
        return ImageSet(self._store(examples, skip_bad, progress), self.image)

    def unlabelled(self, inputs: Sequence[Any]) -> ImageSet | TextSet:
        """Return a dataset of paths, images or texts to predict on."""
        return self.dataset(Examples(list(inputs), [0] * len(inputs), [str(item) for item in inputs]))

    def _store(self, examples: Examples, skip_bad: bool, progress: Progress | None) -> ImageStore:
        assert self.image is not None
        store = ImageStore(examples, self.image, skip_bad, progress)
        self.bad += store.bad
        return store

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for `run.json`."""
        reads = {"max_length": self.max_length} if self.image is None else {"image": self.image.as_dict()}
        return {"spec": self.spec, "kind": self.kind, "targets": self.targets.as_dict(), **reads}

    def write_files(self, folder: Path) -> None:
        """Write the configuration and the tokenizer of a model that has them."""
        for file in self.files:
            file.save_pretrained(folder)
