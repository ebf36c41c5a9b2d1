"""Priors by name."""

import pytest

from deelbo.priors import PRIORS, make_recipe, short_name
from deelbo.priors.base import PriorRecipe, SearchAxis, backbone_and_head
from deelbo.priors.gaussian import PriorGroup
from shared.cases import Net, copies, same


@pytest.mark.parametrize(
    ("name", "axes"),
    [
        ("l2-sp", [(("backbone",), False), (("head",), False)]),
        ("l2-zero", [(("backbone", "head"), False)]),
        ("per-layer", []),
        ("ptyl", [(("backbone",), True), (("head",), False)]),
    ],
)
def test_search_axes_are_groups_of_the_prior(name, axes):
    assert [(axis.groups, axis.is_variance) for axis in PRIORS[name].search_axes] == axes
    if name in ("l2-sp", "l2-zero"):
        groups = make_recipe(name).make(Net(), "head").variances
        assert {group for axis in PRIORS[name].search_axes for group in axis.groups} == set(groups)


def test_every_prior_is_registered_under_its_own_name():
    assert PRIORS.names() == ["adapters", "l2-sp", "l2-zero", "per-layer", "ptyl"]
    assert all(PRIORS[name].name == name for name in PRIORS)


def test_a_name_may_bring_a_file():
    recipe = make_recipe("ptyl:C:/far/away.safetensors", rank=3, diagonal=0.5)
    assert (recipe.file, recipe.rank, recipe.diagonal) == ("C:/far/away.safetensors", 3, 0.5)
    for prior, message in (
        ("ptyl", "prior='ptyl' needs a file, as in ptyl:FILE"),
        ("ptyl:", "needs a file"),
        ("l2-sp:x", r"prior='l2-sp' takes no file \(x\)"),
        ("l3", "prior='l3', but it is one of adapters, l2-sp, l2-zero, per-layer, ptyl"),
    ):
        with pytest.raises(ValueError, match=message):
            make_recipe(prior)


def test_names_without_folders():
    assert short_name("l2-sp") == "l2-sp"
    assert short_name("ptyl:/far/away/first.safetensors") == "ptyl:first"


def test_a_prior_without_a_file_starts_where_the_network_is():
    net = Net()
    before = copies(net)
    recipe = make_recipe("l2-zero")
    recipe.start(net, "head")
    assert same(net, before)
    assert recipe.fingerprint() is None


def test_a_frozen_backbone_has_no_group():
    net = Net()
    classifier = dict(net.head.named_parameters())
    assert list(backbone_and_head(None, classifier).variances) == ["head"]
    both = backbone_and_head(PriorGroup(dict(net.body.named_parameters())), classifier)
    assert {name: group.num_params for name, group in both.named_groups().items()} == {"backbone": 42, "head": 24}


def test_a_prior_of_ones_own_is_one_registration():
    @PRIORS.register("my-prior", "mine")
    class Mine(PriorRecipe):
        name = "my-prior"
        search_axes = (SearchAxis(("head",)),)

        def make(self, network, head=None):
            return backbone_and_head(None, dict(network.head.named_parameters()))

    try:
        assert list(make_recipe("my-prior").make(Net()).variances) == ["head"]
        assert "my-prior: mine" in PRIORS.help()
    finally:
        del PRIORS._entries["my-prior"], PRIORS._summaries["my-prior"]
