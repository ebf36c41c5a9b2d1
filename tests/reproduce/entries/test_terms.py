"""Figure 1b: both terms of the objective from a run's history."""

import pytest

from deelbo.reproduce import ENTRIES
from deelbo.reproduce.entries.terms import terms_of
from deelbo.reproduce.kept_networks import Task, keep
from shared.reproductions import tiny_setup


def test_the_terms_add_up_to_the_objective(tmp_path):
    kept = keep(Task(), tiny_setup(tmp_path), "de-elbo", method="de-elbo")
    rows = terms_of(kept)
    assert [row["epoch"] for row in rows] == sorted(row["epoch"] for row in rows)
    assert rows[-1]["kl"] < 0
    assert rows[-1]["likelihood"] < 0
    # At the end the KL is that of the result; the likelihood is of other draws and statistics, so it is only close.
    assert -rows[-1]["kl"] == pytest.approx(float(kept.objective.kl()), rel=0.05)


def test_claims():
    def row(likelihood, kl):
        return {"epoch": 1.0, "likelihood": likelihood, "kl": kl}

    entry = ENTRIES["fig-1b"]
    paper = {"elbo": [row(-100.0, -1e6), row(-98.0, -1e3)], "de-elbo": [row(-1e6, -1e5), row(-1e4, -1e5)]}
    assert [claim.verdict for claim in entry._claims({"terms": paper})] == ["holds", "holds"]
    other = {"elbo": [row(-100.0, -1e6), row(-10.0, -1e3)], "de-elbo": [row(-1e6, -1e5), row(-1e6, -1e5)]}
    assert [claim.verdict for claim in entry._claims({"terms": other})] == ["holds partly", "does not hold"]
    figure = entry._draw(paper)
    assert [axis.get_title() for axis in figure.axes] == ["trained on ELBO", "trained on DE-ELBO"]
    assert list(figure.axes[0].get_lines()[1].get_ydata()) == [-1e6, -1e3]
