"""Tables of results in the paper's layout, from records written by hand, and the paper's own."""

import pytest

from deelbo.reproduce import ENTRIES
from deelbo.reproduce.entries.tables import published_table
from deelbo.reproduce.published import published
from shared.reproductions import fill, tiny_setup

METHODS = {"map": 0.8, "la-lml": 0.4, "elbo": 0.3, "de-elbo": 0.79}


@pytest.fixture
def setup(tmp_path):
    setup = tiny_setup(tmp_path, ("cifar10", "pets"))
    for study in ENTRIES["tab-image-acc"].studies:
        if study.dataset in setup.data and not study.prior.startswith("PTYL"):
            fill(setup, study, lambda trial: METHODS[trial.settings.method] + 0.02 * (trial.settings.seed == 2001))
    return setup


def test_rows_and_columns_are_the_papers(setup):
    reproduction = ENTRIES["tab-image-acc"].make(setup)
    head, _, *lines = reproduction.table.split("\n\n")[0].splitlines()
    assert head == "| network | model | method | CIFAR-10, N = 15 | CIFAR-10, N = 18 | Pet-37, N = 15 |"
    ours = [line.split(" | ")[:3] for line in lines]
    papers = [line.split(" | ")[:3] for line in published_table(published("tab-image-acc")).splitlines()[2:]]
    assert ours == [line for line in papers if "PTYL" not in line[1]]
    mean = "80.0 (79.0–81.0)"
    assert f"| ResNet-50 | L2-zero | iso DE-ELBO (ours) | {mean} | {mean} | {mean} |" in lines
    assert reproduction.claims[0].verdict == "holds"  # one point less than grid search
    assert "ResNet-50, L2-SP, Pet-37, N = 15: 80 against 81" in reproduction.claims[0].evidence
    assert any("PTYL (SSL) was left out" in note for note in reproduction.notes)


def test_nll_and_calibration_use_the_same_runs(setup):
    before = set(setup.records.folder.glob("*.json"))
    nll = ENTRIES["tab-image-nll"].make(setup)
    assert set(setup.records.folder.glob("*.json")) == before
    assert "0.4 (0.38–0.42)" in nll.table
    assert nll.claims[0].verdict == "holds"
    for study in ENTRIES["tab-image-ece"].studies:
        fill(setup, study)
    ece = ENTRIES["tab-image-ece"].make(setup)
    assert {row["method"] for row in ece.numbers["rows"]} == {"la-lml", "elbo", "de-elbo"}
    assert ece.claims[0].text == "Calibration error (ECE) of DE-ELBO is better than that of the ELBO"


def test_the_papers_numbers():
    text = published_table(published("tab-image-acc"))
    assert "| ResNet-50 | L2-SP | iso DE-ELBO (ours) | 69.9 (67.4–71.9) | 88.5 (86.9–89.5) |" in text
    assert text.count("\n") == 1 + 15
    assert "| BERT-base | L2-SP | diagEF LA-LML | 84.2 (83.5–85.3) |" in published_table(published("tab-text-acc"))
