"""The two scales of a reproduction: what the paper did, and the same experiments reduced to an evening on a laptop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from deelbo.specs import ModelSpec


@dataclass(frozen=True)
class Dataset:
    """A dataset of the paper.

    Args:
        title: Its name in the paper.
        kind: "image" or "text".
        named: Its name for `load_data`, which can download it.
        total: Number of its training examples.
        classes: Number of its classes.
    """

    title: str
    kind: str
    named: str
    total: int
    classes: int


DATASETS = {
    "cifar10": Dataset("CIFAR-10", "image", "cifar10", 50_000, 10),
    "flowers102": Dataset("Flower-102", "image", "flowers102", 1_020, 102),
    "pets": Dataset("Pet-37", "image", "pets", 3_680, 37),
    "agnews": Dataset("News-4", "text", "ag_news", 120_000, 4),
}
IMAGES, TEXTS = ("cifar10", "flowers102", "pets"), ("agnews",)

# Networks of the paper by their names there, with the number D of their weights with a classifier for 10 (4) classes.
NUM_PARAMS = {"ResNet-50": 23_528_522, "ViT-B/16": 85_806_346, "ConvNeXt-Tiny": 27_827_818, "BERT-base": 109_485_316}
# Methods that the paper compares with each network and prior.
_ALL = ("map-grid", "map-bo", "la-lml", "la-clml", "elbo", "de-elbo")
METHODS = {
    ("ResNet-50", "L2-zero"): ("map-grid", "la-lml", "de-elbo"),
    ("ResNet-50", "L2-SP"): ("map-grid", "la-lml", "elbo", "de-elbo"),
    ("ResNet-50", "PTYL (SSL)"): ("map-grid", "de-elbo"),
    ("ResNet-50", "PTYL"): ("map-grid", "de-elbo"),
    ("ViT-B/16", "L2-SP"): ("map-grid", "elbo", "de-elbo"),
    ("ConvNeXt-Tiny", "L2-SP"): _ALL,
    ("BERT-base", "L2-SP"): _ALL,
}
TITLES = {
    "map-grid": "MAP + GS",
    "map-bo": "MAP + BO",
    "la-lml": "diagEF LA-LML",
    "la-clml": "diagEF LA-CLML",
    "elbo": "iso ELBO",
    "de-elbo": "iso DE-ELBO (ours)",
}


@dataclass(frozen=True, eq=False)  # compared by identity, so that plans can be cached
class Scale:
    """Networks, sizes, grids and lengths of all experiments.

    Args:
        name: "laptop" or "paper".
        machine: What its hours are counted on.
        models: Model for each network of the paper.
        num_params: D of each of these models, about, where the plan of a sweep over kappa needs it.
        sizes: Training sizes of each dataset.
        kept_size: N of the networks that are kept and looked into (Fig. 1, B.7 and B.8).
        settings: Fields of `Settings` that all runs share, by the kind of the inputs.
        options: Further fields of `Options`, by the kind of the inputs.
        kappas: Number of kappas of a sweep from 1 to D.
        samples: Number S of draws for the importance-weighted objectives.
        seeds: Seeds of the training sets.
        test_size: Number of test examples; None for all.
        jobs: Number of runs at a time that the hours are counted with.
    """

    name: str
    machine: str
    models: Mapping[str, ModelSpec]
    num_params: Mapping[str, int]
    sizes: Mapping[str, tuple[int, ...]]
    kept_size: int
    settings: Mapping[str, dict[str, Any]]
    options: Mapping[str, dict[str, Any]]
    kappas: int = 10
    samples: int = 50
    seeds: tuple[int, ...] = (1001, 2001, 3001)
    test_size: int | None = None
    jobs: int = 1


# The paper's way where ours differs: a random classifier, a scale moved by the optimizer, running statistics.
_PAPERS_WAY = {
    "head_start": "random",
    "scale_update": "gradient",
    "batch_norm": "running",
    "samples": 10,
    "pairs": False,
    "blend": 1.0,
}
_RATES = {"learning_rates": (0.1, 0.01, 0.001, 0.0001), "lr_search": "grid"}


# The authors' treatment of images; their weights are the first that torchvision had (docs/fidelity.md).
_papers_network = partial(ModelSpec, resize="square", normalize="training-set")

PAPER = Scale(
    name="paper",
    machine="one NVIDIA A100",
    models={
        "ResNet-50": _papers_network("torchvision:resnet50@IMAGENET1K_V1"),
        "ViT-B/16": _papers_network("torchvision:vit_b_16@IMAGENET1K_V1"),
        "ConvNeXt-Tiny": _papers_network("torchvision:convnext_tiny@IMAGENET1K_V1"),
        "BERT-base": ModelSpec("hf:google-bert/bert-base-uncased"),
    },
    num_params=NUM_PARAMS,
    sizes={
        "cifar10": (100, 1_000, 10_000, 50_000),
        "flowers102": (510, 1_020),
        "pets": (370, 3_441),
        "agnews": (400, 4_000, 40_000, 120_000),
    },
    kept_size=1_000,
    settings={
        "image": {"steps": 6_000, "batch_size": 128, **_PAPERS_WAY},
        "text": {"steps": 12_000, "batch_size": 32, **_PAPERS_WAY},
    },
    options={
        "image": {**_RATES, "bo_iterations": 35, "bo_runs": 5},
        "text": {**_RATES, "bo_iterations": 11, "bo_runs": 10},
    },
)

_LITE = ModelSpec("offline:efficientnet_lite0", image_size=64)
# A cell of the grid for each pair of two strengths and two rates: 8 runs instead of 144.
_SMALL_GRID = {"learning_rates": (0.03, 0.01), "strengths": (0.01, 0.0001), "ptyl_variances": (1.0, 1000.0)}

LAPTOP = Scale(
    name="laptop",
    machine="two CPU cores",
    models={
        "ResNet-50": _LITE,
        "ViT-B/16": _LITE,
        "ConvNeXt-Tiny": _LITE,
        "BERT-base": ModelSpec("offline:minilm", max_length=48),
    },
    num_params={"ResNet-50": 3_383_818, "ViT-B/16": 3_383_818, "ConvNeXt-Tiny": 3_383_818, "BERT-base": 22_566_916},
    sizes={"cifar10": (100, 1_000), "flowers102": (510,), "pets": (185,), "agnews": (400,)},
    kept_size=100,  # of which 100 steps are 33 epochs
    settings={
        "image": {"steps": 100, "batch_size": 32},
        "text": {"steps": 100, "batch_size": 32, "pairs": False, "blend": 1.0},
    },
    options={
        "image": {**_SMALL_GRID, "bo_iterations": 4, "clml_samples": 5},
        "text": {**_SMALL_GRID, "bo_iterations": 3, "clml_samples": 5},
    },
    kappas=5,
    test_size=500,
    jobs=2,
)

SCALES = {scale.name: scale for scale in (LAPTOP, PAPER)}
