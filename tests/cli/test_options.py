"""What the options of several commands share."""

import pytest

from deelbo.cli import options
from deelbo.likelihoods import LIKELIHOODS
from deelbo.models import MODEL_SOURCES


def test_numbers():
    assert options.numbers("rates", "0.1, 1e-3,2") == (0.1, 0.001, 2.0)
    assert options.numbers("seeds", "1,20", int) == (1, 20)
    for text in ("", "0.1;0.2", "1,,2", "many"):
        with pytest.raises(ValueError, match=f"rates={text}: write numbers separated by commas"):
            options.numbers("rates", text)
    with pytest.raises(ValueError, match=r"seeds=1\.5"):
        options.numbers("seeds", "1.5", int)


def test_one_number():
    assert options.number("runs", "5", int) == 5
    with pytest.raises(ValueError, match="runs=many: write a number"):
        options.number("runs", "many", int)


def test_words():
    assert options.words("methods", "elbo, map-grid") == ("elbo", "map-grid")
    for text in ("", "a,,b", "a,"):
        with pytest.raises(ValueError, match=f"methods={text}: write words"):
            options.words("methods", text)


def test_the_task():
    assert options.chosen_task(None, False) is None
    assert options.chosen_task("regression", False) == "regression"
    assert options.chosen_task(None, True) == options.chosen_task("multilabel", True) == "multilabel"
    with pytest.raises(ValueError, match="task=regression contradicts multilabel=True"):
        options.chosen_task("regression", True)


def help_of(annotated):
    return annotated.__metadata__[0].help


def test_help_texts_come_from_the_registries():
    assert MODEL_SOURCES.help() in help_of(options.Model)
    assert all(LIKELIHOODS[name].task in help_of(options.Task) for name in LIKELIHOODS)
    assert "balanced" in help_of(options.ClassWeights)
