"""Registries: entries that register themselves, found by import."""

import sys

import pytest

from deelbo._registry import Registry


@pytest.fixture
def registry(tmp_path, monkeypatch):
    """A registry in a package whose modules have an entry each; one of them looks at the registry while imported."""
    package = tmp_path / "registered"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from deelbo._registry import Registry\nTHINGS = Registry('thing', __name__)\n"
    )
    (package / "second.py").write_text(
        "from registered import THINGS\n\n@THINGS.register('b', 'the second')\ndef make():\n    return 2\n"
    )
    (package / "first.py").write_text(
        "from registered import THINGS\n\nSEEN = THINGS.names()\nTHINGS.register('z', 'the first')('last letter')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import registered

    yield registered.THINGS
    for name in [name for name in sys.modules if name.split(".")[0] == "registered"]:
        del sys.modules[name]


def test_entries_are_found_by_import(registry):
    assert "registered.second" not in sys.modules
    assert registry["b"]() == 2
    assert registry["z"] == "last letter"
    assert sys.modules["registered.first"].SEEN == []


def test_names_are_sorted_and_entries_are_in_order(registry):
    assert registry.names() == list(registry) == ["b", "z"]
    assert registry.entries() == ["last letter", registry["b"]]  # first.py comes before second.py
    assert "b" in registry
    assert "c" not in registry


def test_help_has_every_summary(registry):
    assert registry.help() == "b: the second; z: the first."


def test_an_unknown_name_is_refused_with_the_known_ones(registry):
    with pytest.raises(ValueError, match="thing='c', but it is one of b, z"):
        registry["c"]
    assert registry.get("c", None) is None
    assert registry.get("z", None) == "last letter"


def test_users_may_register_entries_of_their_own(registry):
    @registry.register("a", "mine")
    def own():
        return 1

    assert own() == 1  # the decorator gives back what it was given
    assert registry["a"] is own
    assert registry.names() == ["a", "b", "z"]


def test_every_registry_of_ours_knows_its_own_package():
    from deelbo.compare import STRATEGIES
    from deelbo.compare.engines import ENGINES
    from deelbo.likelihoods import LIKELIHOODS
    from deelbo.models import MODEL_SOURCES
    from deelbo.optimizers import OPTIMIZERS
    from deelbo.priors import PRIORS
    from deelbo.training.method import METHODS

    for registry in (STRATEGIES, ENGINES, LIKELIHOODS, MODEL_SOURCES, OPTIMIZERS, PRIORS, METHODS):
        assert isinstance(registry, Registry)
        assert registry.names(), registry.argument
        assert all(f"{name}: " in registry.help() for name in registry)
