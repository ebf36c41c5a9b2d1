"""Table 1: the priors of a network."""

from deelbo.reproduce import ENTRIES
from deelbo.reproduce.entries.priors import _claims
from shared.reproductions import tiny_setup


def test_means_and_starts(tmp_path):
    reproduction = ENTRIES["tab-1"].make(tiny_setup(tmp_path))
    zero, sp = (reproduction.numbers["priors"][name] for name in ("L2-zero", "L2-SP"))
    assert zero["norm_of_mean"] == 0
    assert zero["mean_to_mu"] == zero["norm_of_mu"] > 0
    assert sp["norm_of_mean"] == sp["norm_of_mu"] > 0
    assert zero["start_to_mu"] == sp["start_to_mu"] == sp["mean_to_mu"] == 0
    assert reproduction.claims[0].verdict == "holds"
    assert reproduction.notes == ["the prior PTYL was left out: it needs the posterior of a source task"]


def test_a_wrong_mean_is_noticed():
    row = {"norm_of_mean": 1.0, "mean_to_mu": 2.0, "start_to_mu": 0.0, "norm_of_mu": 3.0, "covariance": "Identity"}
    assert _claims({"L2-zero": row})[0].verdict == "does not hold"
    assert _claims({"L2-zero": {**row, "norm_of_mean": 0.0}, "L2-SP": row})[0].verdict == "holds partly"
