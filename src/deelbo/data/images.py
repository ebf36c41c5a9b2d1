"""Images as networks take them: decoded and resized once, cropped and mirrored at random each time in training."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, get_worker_info

from deelbo._extras import require
from deelbo.data.examples import Examples
from deelbo.data.targets import as_tensor

RESIZES = ("shorter-side", "square")
NORMALIZATIONS = ("network", "training-set")
MEMORY = 4 * 2**30  # bytes of decoded images to keep; a larger set is decoded again each time


@dataclass(frozen=True)
class ImageFormat:
    """Format of the images that a network takes.

    Args:
        size: Height and width in pixels of the crop that the network sees.
        mean: Mean of each channel, of values between 0 and 1; None until it is computed from the training set.
        std: Standard deviation of each channel; None until it is computed from the training set.
        interpolation: How images are resized: "nearest", "bilinear", "bicubic" or "lanczos".
        channels: 3 for colour, 1 for grey.
        square: Whether images are squashed to a square before cropping, as the paper's authors do, or keep their shape.
    """

    size: int
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    interpolation: str = "bicubic"
    channels: int = 3
    square: bool = False

    @property
    def resized(self) -> int:
        """The shorter side (or both, of a square) before cropping: 256 for a crop of 224, as in the paper."""
        return round(self.size * 256 / 224)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; without `square` where it is False, as older runs and records lack it."""
        return {name: value for name, value in asdict(self).items() if name != "square" or value}


def decode(item: Path | bytes | Any, image_format: ImageFormat) -> Tensor:
    """Return an image as bytes, [channels, height, width], its shorter side resized and its longer at most twice that.

    With `image_format.square` both sides are resized to the same length, and nothing is cut off.

    The camera's rotation (EXIF) is applied, transparency is laid over white, 16-bit greys are scaled, palettes and CMYK
    become colour, an animation is its first frame.

    Raises:
        ValueError: If the image cannot be read, or its file is truncated.
    """
    Image, ImageOps = require("PIL.Image", "vision"), require("PIL.ImageOps", "vision")
    try:
        image = item if isinstance(item, Image.Image) else None
        if image is None:
            image = Image.open(io.BytesIO(item) if isinstance(item, bytes) else item)
            image.draft(
                "RGB", (2 * image_format.resized, 2 * image_format.resized)
            )  # lets JPEG decode large photographs at a lower resolution
        image = ImageOps.exif_transpose(image)
        image = image if image_format.square else _middle(image)
        image = _colours(image, Image, "RGB" if image_format.channels == 3 else "L")
        scale = image_format.resized / min(image.size)
        size = tuple(max(image_format.resized, round(side * scale)) for side in image.size)
        if image_format.square:
            size = (image_format.resized, image_format.resized)
        image = image.resize(size, getattr(Image.Resampling, image_format.interpolation.upper()))
    except Exception as error:  # PIL raises many types of errors for damaged files
        raise ValueError(f"cannot be read as an image: {error}") from error
    # NumPy, because a thread that runs PyTorch's operations starts OpenMP threads, which slow the whole process down.
    numpy = require("numpy", "vision")
    pixels = numpy.asarray(image).reshape(image.height, image.width, image_format.channels)
    return torch.from_numpy(pixels.transpose(2, 0, 1).copy())


def _middle(image: Any) -> Any:
    """Return the middle of a panorama, at most twice as long as it is wide."""
    width, height = image.size
    longest = 2 * min(width, height)
    left, top = max(0, (width - longest) // 2), max(0, (height - longest) // 2)
    return image.crop((left, top, min(width, left + longest), min(height, top + longest)))


def _colours(image: Any, Image: Any, mode: str) -> Any:
    if image.mode.startswith("I;16") or image.mode in ("I", "F"):
        # Integers have 16 bits; floating-point values go to 1, or to 255 where they exceed it.
        top = 65535.0 if image.mode != "F" else 255.0 if image.getextrema()[1] > 1 else 1.0
        image = image if image.mode in ("I", "F") else image.convert("I")
        return image.convert("F").point(lambda value: value * (255.0 / top)).convert("L").convert(mode)
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        image = Image.alpha_composite(white, image)
    return image.convert(mode)


class ImageStore:
    """Decoded images, in memory if they fit; shared by the augmented and the plain view of a training set.

    Args:
        examples: Examples whose inputs are images.
        image_format: Size and colours to decode them to.
        skip_bad: Whether to leave unreadable images out, and list them in `bad`, instead of refusing them.
        progress: Called after each image with (done, total).
        memory: Number of bytes of decoded images to keep at most.

    Raises:
        ValueError: If an image cannot be read and is not to be skipped; the message names it.
    """

    def __init__(
        self,
        examples: Examples,
        image_format: ImageFormat,
        skip_bad: bool = False,
        progress: Callable[[int, int], None] | None = None,
        memory: int = MEMORY,
    ) -> None:
        self.image_format = image_format
        self.bad: list[str] = []
        self._threads = ThreadPoolExecutor(os.cpu_count() or 1)  # PIL decodes outside Python's lock
        self._waiting: dict[int, Future[Tensor]] = {}
        self.images: list[Tensor] | None = []
        kept, used, moments = [], 0, torch.zeros(3, image_format.channels, dtype=torch.float64)
        for i, image in enumerate(self._decoded(examples.inputs)):
            if progress is not None:
                progress(i + 1, len(examples))
            if isinstance(image, Exception):
                if not skip_bad:
                    raise ValueError(f"{examples.names[i]} {image} (skip_bad=True leaves such files out)") from image
                self.bad.append(examples.names[i])
                continue
            kept.append(i)
            if image_format.mean is None:
                values = image.flatten(1).double() / 255
                moments += torch.stack([torch.ones_like(values), values, values.square()]).sum(2)
            used += image.numel()
            if used > memory:
                self.images = None
            elif self.images is not None:
                self.images.append(image)
        if examples.inputs and not kept:
            raise ValueError(f"none of the {len(examples)} images can be read, such as {self.bad[0]}")
        self.examples = examples.take(kept)
        mean, square = moments[1:] / moments[0]
        self.mean, self.std = mean.tolist(), (square - mean.square()).clamp(min=1e-8).sqrt().tolist()

    def _decoded(self, items: Sequence[Any]) -> Iterator[Tensor | Exception]:
        def attempt(item: Any) -> Tensor | Exception:
            try:
                return decode(item, self.image_format)
            except ValueError as error:
                return error

        for start in range(0, len(items), 256):  # so that few decoded images wait in memory
            yield from self._threads.map(attempt, items[start : start + 256])

    def __getitem__(self, index: int) -> Tensor:
        if self.images is not None:
            return self.images[index]
        # The threads do not exist in a worker process, which would wait for them for ever.
        waiting = self._waiting.pop(index, None) if get_worker_info() is None else None
        return decode(self.examples.inputs[index], self.image_format) if waiting is None else waiting.result()

    def __getstate__(self) -> dict[str, Any]:
        """Return what a worker process needs that is not forked: everything but the threads."""
        return {**self.__dict__, "_threads": None, "_waiting": {}}

    def prepare(self, indices: Iterable[int]) -> None:
        """Begin to decode images that will be needed soon."""
        if self.images is None:
            for i in indices:
                if i not in self._waiting:
                    self._waiting[i] = self._threads.submit(decode, self.examples.inputs[i], self.image_format)


class ImageSet(Dataset):
    """Pairs (image, label): a random crop, mirrored half of the time, or the crop in the centre.

    Args:
        store: The decoded images.
        image_format: Size and normalisation of the images, with mean and std.
        augment: Whether to crop at random.
        flip: Whether to mirror at random as well.
    """

    def __init__(self, store: ImageStore, image_format: ImageFormat, augment: bool = False, flip: bool = True) -> None:
        self.store, self.image_format, self.augment, self.flip = store, image_format, augment, flip
        self.examples = store.examples
        assert image_format.mean is not None
        assert image_format.std is not None
        self._shift = torch.tensor(image_format.mean).view(1, -1, 1, 1) * 255
        self._factor = 1 / (torch.tensor(image_format.std).view(1, -1, 1, 1) * 255)
        self.prepare = store.prepare

    def __len__(self) -> int:
        return len(self.examples)

    def skip(self, index: int) -> None:
        """Draw the random numbers of an image that another process trains on."""
        if self.augment:
            torch.rand(3)

    def __getitem__(self, index: int) -> tuple[Tensor, Any]:
        image, size = self.store[index], self.image_format.size
        rows, columns = image.shape[1] - size, image.shape[2] - size
        if self.augment:
            row, column, flip = (torch.rand(3) * torch.tensor([rows + 1.0, columns + 1.0, 2.0])).long().tolist()
        else:
            row, column, flip = rows // 2, columns // 2, 0
        image = image[:, row : row + size, column : column + size]
        return image.flip(2) if flip and self.flip else image, self.examples.labels[index]

    def collate(self, pairs: Sequence[tuple[Tensor, Any]]) -> tuple[Tensor, Tensor]:
        """Stack the images into a batch and normalise them."""
        images = torch.stack([image for image, _ in pairs])
        return images.float().sub_(self._shift).mul_(self._factor), as_tensor([label for _, label in pairs])


def normalized(image_format: ImageFormat, store: ImageStore) -> ImageFormat:
    """Return the format with mean and std: the network's own, or those of the training set if it has none."""
    return (
        image_format
        if image_format.mean is not None
        else replace(image_format, mean=tuple(store.mean), std=tuple(store.std))
    )
