"""The free temperature on more tasks of images, which it was not chosen on.

    apt-get update && apt-get download openclipart-png oxygen-icon-theme tuxpaint-stamps-default fonts-lato ...
    for PACKAGE in *.deb; do dpkg-deb -x $PACKAGE PACKAGES; done
    python benchmarks/image_tasks.py folders DATA PACKAGES FOLDERS
    python benchmarks/image_tasks.py train FOLDERS OUT [--tasks clipart,icons] [--seeds 1,2] [--part 1/2]
    python benchmarks/image_tasks.py table FOLDERS OUT

DATA has the folders pets and cifar10; digits are scikit-learn's; letters are drawn with the fonts in PACKAGES, of which
21 packages were used: fonts-cabin, -cantarell, -comfortaa, -croscore, -crosextra-caladea, -crosextra-carlito,
-dejavu-core, -dejavu-extra, -ebgaramond, -freefont-ttf, -hack, -inconsolata, -junicode, -lato, -liberation,
-linuxlibertine, -open-sans, -quicksand, -roboto-unhinted, -texgyre and -urw-base35. `folders` makes one folder a task.
`train` fine-tunes EfficientNet-Lite0, 1 or 2 by the default's rates in 200 steps of 32, or as many as the task says,
and keeps the logits for the training images and for up to 1,000 others. `table` prints the negative log-likelihood
(NLL) and the calibration error (ECE) of these as the network is, with the free temperature, and with the best one. Both
continue after an interruption. One thread.
"""

from __future__ import annotations

import argparse
import statistics
import string
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass
from pathlib import Path

import safetensors.torch
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from calibration_contenders import factor_before, known_before
from deelbo import finetune
from deelbo._memory import keep_memory
from deelbo.cli.quickstart import write_digits
from deelbo.likelihoods import Categorical
from deelbo.likelihoods.temperature import held_out_factor
from deelbo.metrics import measure
from deelbo.specs import DataSpec, ModelSpec
from deelbo.training.batches import labels_of
from deelbo.training.calibration import free_factor
from deelbo.training.start import Start
from few_texts import divide
from small_data import RATES

CLIPART = "usr/share/openclipart/png"
KINDS = ["animals", "buildings", "electronics", "food", "geography", "office", "people", "plants", "tools"]
KINDS += ["transportation"]
SYMBOLS = ["shapes/arrows", "signs_and_symbols/flags", "signs_and_symbols/map_symbols", "special/patterns"]
SYMBOLS += ["transportation/roadsigns"]
ICONS = "usr/share/icons/oxygen/base/64x64"
PURPOSES = ["actions", "apps", "devices", "mimetypes", "places", "status"]
STAMPS = "usr/share/tuxpaint/stamps"
THINGS = ["animals", "food", "plants", "symbols", "town", "vehicles"]
SIDE = 128  # pixels of a clip-art image at most
MOST_BYTES = 100_000  # of its file: some are posters


@dataclass(frozen=True)
class Task:
    """Some images of each class of a folder, a network, and the side of its images in pixels."""

    folder: str
    per_class: int
    network: str
    size: int
    steps: int = 200

    @property
    def name(self) -> str:
        return " ".join(str(value) for value in astuple(self))


CHOSEN_ON = [
    Task("digits", 5, "lite0", 32),
    Task("digits", 30, "lite0", 32),
    Task("cifar10", 10, "lite0", 32),
    Task("cifar10", 30, "lite2", 64),
    Task("four animals", 30, "lite1", 64),
    Task("cat or dog", 50, "lite0", 64),
    Task("cat or dog photographs", 10, "lite1", 96),
    Task("cats", 10, "lite2", 96),
    Task("pets", 10, "lite1", 96),
    Task("clipart", 20, "lite0", 96),
    Task("symbols", 8, "lite0", 64),
    Task("icons", 15, "lite1", 64),
    Task("cifar10", 400, "lite0", 64),
    Task("four animals", 500, "lite0", 64),
    Task("digits", 100, "lite0", 32),
    Task("cifar10", 30, "lite0", 64, 1000),
    Task("icons", 15, "lite0", 64, 60),
    Task("cats", 20, "lite0", 96, 600),
    Task("cifar10", 200, "lite0", 32, 1500),
    Task("digits", 100, "lite0", 32, 1000),
    Task("dogs", 8, "lite2", 96),
    Task("four vehicles", 10, "lite1", 64),
    Task("cifar10", 20, "lite1", 96),
    Task("clipart", 5, "lite2", 96),
    Task("cat or dog", 200, "lite1", 64),
    Task("icons", 25, "lite2", 64),
]
NEW = [  # trained after the rule was chosen
    Task("stamps", 12, "lite0", 96),
    Task("letters", 4, "lite0", 48),
    Task("bold", 20, "lite0", 64),
    Task("cat or dog photographs", 40, "lite0", 64),
    Task("four vehicles", 100, "lite0", 64),
    Task("cats", 5, "lite0", 128),
    Task("stamps", 25, "lite1", 96),
    Task("letters", 20, "lite1", 48),
    Task("bold", 100, "lite0", 64),
    Task("cat or dog photographs", 5, "lite2", 96),
    Task("digits", 15, "lite2", 48),
    Task("symbols", 20, "lite1", 64),
]


def classes_of(folders: list[Path]) -> Iterator[tuple[str, Path]]:
    """Yield the class of each image, and its file."""
    for folder in folders:
        for path in sorted(folder.glob("*/*")):
            yield path.parent.name, path


def link(folder: Path, images: list[tuple[str, Path]]) -> None:
    """Make a folder of links, with a folder for each class."""
    for i, (name, path) in enumerate(images):
        place = folder / name / f"{i}{path.suffix}"
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists():
            place.symlink_to(path.resolve())
    print(folder.name, len(images))


def paint(folder: Path, source: Path, kinds: list[str]) -> None:
    """Write small copies of images with transparent parts, on white, with a folder for each kind."""
    number = 0
    for kind in kinds:
        place = folder / Path(kind).name
        place.mkdir(parents=True, exist_ok=True)
        for path in sorted((source / kind).rglob("*.png")):
            if path.is_symlink() or path.stat().st_size > MOST_BYTES:
                continue
            with Image.open(path) as image:
                whole = image.convert("RGBA")
            whole.thumbnail((SIDE, SIDE))
            paper = Image.new("RGBA", whole.size, "white")
            paper.alpha_composite(whole)
            paper.convert("RGB").save(place / f"{number}.png")
            number += 1
    print(folder.name, number)


def draw_letters(folder: Path, fonts: list[Path], class_of: Callable[[str, Path], str]) -> None:
    """Draw every capital letter in every font, black on white, with a folder for each class."""
    number = 0
    for font in fonts:
        face = ImageFont.truetype(str(font), 40)
        for letter in string.ascii_uppercase:
            place = folder / class_of(letter, font)
            place.mkdir(parents=True, exist_ok=True)
            image = Image.new("RGB", (64, 64), "white")
            ImageDraw.Draw(image).text((32, 32), letter, "black", face, anchor="mm")
            image.save(place / f"{number}.png")
            number += 1
    print(folder.name, number)


def make_folders(data: Path, packages: Path, out: Path) -> None:
    """Make the folder of each task."""
    pets, cifar = (list(classes_of([data / name / "train", data / name / "test"])) for name in ("pets", "cifar10"))
    link(out / "pets", pets)
    link(out / "cats", [pair for pair in pets if pair[0][0].isupper()])
    link(out / "dogs", [pair for pair in pets if pair[0][0].islower()])
    link(out / "cat or dog photographs", [("cat" if name[0].isupper() else "dog", path) for name, path in pets])
    link(out / "cifar10", cifar)
    link(out / "four animals", [pair for pair in cifar if pair[0] in ("cat", "deer", "dog", "horse")])
    vehicles = ("airplane", "automobile", "ship", "truck")
    link(out / "four vehicles", [pair for pair in cifar if pair[0] in vehicles])
    link(out / "cat or dog", [pair for pair in cifar if pair[0] in ("cat", "dog")])
    digits = write_digits(out / "all digits", 1000, 600)
    link(out / "digits", list(classes_of([digits / "train", digits / "test"])))
    paint(out / "clipart", packages / CLIPART, KINDS)
    paint(out / "symbols", packages / CLIPART, SYMBOLS)
    paint(out / "icons", packages / ICONS, PURPOSES)
    paint(out / "stamps", packages / STAMPS, THINGS)
    fonts = sorted(path for path in (packages / "usr/share").rglob("*.[ot]tf") if path.is_file())
    draw_letters(out / "letters", fonts, lambda letter, font: letter)
    draw_letters(out / "bold", fonts, lambda letter, font: "bold" if "bold" in font.name.lower() else "other")


def train(task: Task, seed: int, folders: Path) -> dict[str, Tensor]:
    """Train a network, and return its logits and what was known before training."""
    flip = task.folder not in ("digits", "symbols", "letters", "bold")
    data, others = divide(DataSpec(str(folders / task.folder)).read(), task.per_class, seed)
    network, reader = ModelSpec(f"offline:efficientnet_{task.network}", image_size=task.size).load(data, seed)
    augmented, plain = reader.training_sets(data.train, False, None, flip)
    result = finetune(
        network,
        augmented,
        plain_train_set=plain,
        device="cpu",
        seed=seed,
        steps=task.steps,
        batch_size=32,
        learning_rates=RATES,
    )
    start = Start(**result.start)
    found = {"z": result.raw_predictions(plain), "y": labels_of(plain)}
    found |= {"other_z": result.raw_predictions(reader.dataset(others)), "other_y": torch.tensor(others.labels)}
    numbers = {"dimension": start.dimension, "frozen_accuracy": start.frozen_features["accuracy"]}
    numbers |= {"information": start.information}
    return found | {name: torch.tensor(value, dtype=torch.float64) for name, value in numbers.items()}


@dataclass(frozen=True)
class Found:
    """How good the plain probabilities of a kept network are, and those with three temperatures."""

    dimension: float  # in how many directions the pretrained network's features vary
    factors: list[float]  # of the logits: none, by the rule before, the free one, the best one
    metrics: list[dict[str, float]]

    def above(self, i: int, j: int) -> float:
        """Return by which share one NLL is above another."""
        return self.metrics[i]["nll"] / self.metrics[j]["nll"] - 1


def compare(kept: dict[str, Tensor]) -> Found:
    """Return how good a kept network's probabilities are."""
    likelihood, z, y, dimension = Categorical(), kept["z"].double(), kept["y"], float(kept["dimension"])
    start = known_before(y, dimension, kept["frozen_accuracy"], kept["information"])
    tested, labels = kept["other_z"].double(), kept["other_y"]
    factors = [1.0, factor_before(z, y, start), free_factor(z, y, likelihood, start, len(y))]
    factors.append(held_out_factor(tested, labels, likelihood))
    return Found(dimension, factors, [measure(likelihood, (f * tested).log_softmax(1), labels) for f in factors])


def row(kept: dict[str, Tensor], found: Found) -> str:
    """Return the cells of the table for one network."""
    cells = [f"{len(kept['y'])}", f"{len(kept['other_y'])}", f"{found.dimension:.0f}"]
    cells += [f"{found.metrics[0]['accuracy']:.1%}", ", ".join(f"{1 / factor:.2f}" for factor in found.factors[1:])]
    cells += [", ".join(f"{of[name]:.3f}" for of in found.metrics) for name in ("nll", "ece")]
    return " | ".join([*cells, f"{found.above(2, 3):+.1%}"])


def summary(found: list[Found]) -> str:
    """Return how often the rule before and the free temperature are near the best one."""
    lines = []
    for i, title in ((1, "rule before"), (2, "free temperature")):
        above = [one.above(i, 3) for one in found]
        lines.append(
            f"{title}: within 5 % on {sum(share <= 0.05 for share in above)} of {len(found)}, "
            f"median {statistics.median(above):.1%}, largest {max(above):.1%}; "
            f"over 3 % worse than plain on {sum(one.above(i, 0) > 0.03 for one in found)}; "
            f"ECE at most 0.05 on {sum(one.metrics[i]['ece'] <= 0.05 for one in found)}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["folders", "train", "table"])
    parser.add_argument("paths", type=Path, nargs="+")
    parser.add_argument("--tasks", default="", help="starts of names, such as clipart,icons")
    parser.add_argument("--seeds", default="1,2")
    parser.add_argument("--part", default="1/1")
    arguments = parser.parse_args()
    if arguments.what == "folders":
        make_folders(*arguments.paths)
        return
    torch.set_num_threads(1)
    keep_memory()
    folders, out = arguments.paths
    part, parts = map(int, arguments.part.split("/"))
    wanted = [task for task in CHOSEN_ON + NEW if task.name.startswith(tuple(arguments.tasks.split(",")))]
    chosen = [(task, seed) for seed in map(int, arguments.seeds.split(",")) for task in wanted][part - 1 :: parts]
    out.mkdir(parents=True, exist_ok=True)
    three = "rule before, free, best"
    print(f"| | N | others | D_e | accuracy | T: {three} | NLL: plain, {three} | ECE | NLL above best T's |")
    print(f"|{' --- |' * 9}")
    compared: dict[bool, list[Found]] = {}
    for task, seed in chosen:
        path = out / f"{task.name}-{seed}.safetensors"
        if arguments.what == "train" and not path.exists():
            safetensors.torch.save_file(train(task, seed, folders), path)
        if path.exists():
            kept = safetensors.torch.load_file(path)
            found = compare(kept)
            compared.setdefault(task in NEW, []).append(found)
            print(f"| {task.name}, set {seed} | {row(kept, found)} |", flush=True)
    for new, networks in compared.items():
        print(f"\nThe rule was chosen {'before' if new else 'on'} these networks.\n{summary(networks)}")


if __name__ == "__main__":
    main()
