"""Figures 1a and B.8: from trained networks to curves, and claims judged by given curves."""

import json

import pytest

from deelbo.reproduce import ENTRIES, reproduce
from deelbo.reproduce.eta import ETAS
from shared.reproductions import tiny_setup


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("eta")
    setup = tiny_setup(folder)
    for name in ("fig-1a", "fig-b8"):
        reproduce(name, setup)
    return folder / "out"


def test_two_objectives_of_two_posteriors(made):
    found = json.loads((made / "fig-1a.json").read_text())
    assert found["etas"] == list(ETAS)
    for name in ("elbo", "de-elbo"):
        # J of kappa and J of 1 have the same KL, so their difference is the same at every eta: (kappa - 1) E[log p].
        one, emphasised = (found["values"][name][objective] for objective in ("elbo", "de-elbo"))
        differences = [b - a for a, b in zip(one, emphasised, strict=True)]
        assert differences == pytest.approx([differences[0]] * len(ETAS))
        assert differences[0] < 0
    assert (made / "fig-1a.png").read_bytes().startswith(b"\x89PNG")


def test_the_same_networks_are_used_for_both(made):
    assert len(list((made / "runs").glob("*/run.json"))) == 2
    plain, weighted = (json.loads((made / f"{name}.json").read_text()) for name in ("fig-1a", "fig-b8"))
    assert plain["test_accuracy"] == weighted["test_accuracy"]
    assert weighted["samples"] == 4
    # The importance-weighted objective is near the plain one where prior and posterior are alike, not equal to it.
    assert weighted["values"] != weighted["plain"]


def curves(elbo, de_elbo):
    """Return numbers where the ELBO and the DE-ELBO of two posteriors have these best values."""
    shape = [-abs(i - 20) for i in range(len(ETAS))]
    values = {
        name: {"elbo": [one + s for s in shape], "de-elbo": [two + s for s in shape]}
        for name, one, two in (("elbo", elbo[0], de_elbo[0]), ("de-elbo", elbo[1], de_elbo[1]))
    }
    return {"values": values, "etas": list(ETAS), "test_accuracy": {"elbo": 0.3, "de-elbo": 0.9}}


def test_claims():
    entry = ENTRIES["fig-1a"]
    as_in_the_paper = entry._claims(curves(elbo=(-10, -50), de_elbo=(-900, -200)))
    assert [claim.verdict for claim in as_in_the_paper] == ["holds"] * 3
    assert "100% of the values of eta" in as_in_the_paper[0].evidence
    otherwise = entry._claims(curves(elbo=(-50, -10), de_elbo=(-200, -900)))
    assert [claim.verdict for claim in otherwise] == ["does not hold", "does not hold", "holds"]


@pytest.mark.parametrize(
    ("gain", "verdict"), [(0.01, "holds"), (-0.01, "holds partly"), (5.0, "holds partly"), (-50.0, "holds partly")]
)
def test_the_bound_of_several_draws(gain, verdict):
    entry, numbers = ENTRIES["fig-b8"], curves(elbo=(-1000, -5000), de_elbo=(-9000, -2000))
    numbers["plain"] = {  # values go from 0 to -20 below their best: a hundredth of that counts as slight
        name: {"elbo": [value - gain for value in of["elbo"]]} for name, of in numbers["values"].items()
    }
    assert entry._claims(numbers)[-1].verdict == verdict
