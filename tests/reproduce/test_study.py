"""Studies: what is planned without data is what is made with them."""

import pytest

from deelbo.reproduce import LAPTOP, PAPER
from deelbo.reproduce.plan import distinct
from deelbo.reproduce.study import Study, make_studies
from shared.reproductions import fill, tiny_setup


@pytest.mark.parametrize(
    "study",
    [
        Study("ConvNeXt-Tiny", "cifar10"),
        Study("ResNet-50", "cifar10", "L2-zero"),
        Study("ConvNeXt-Tiny", "cifar10", methods=("de-elbo",), sweep=True),
    ],
)
def test_the_plan_is_what_is_made(tmp_path, study):
    setup = tiny_setup(tmp_path, (study.dataset,))
    comparison = fill(setup, study)
    planned = distinct(study.planned_runs(setup.scale))
    made = list(setup.records.folder.glob("*.json"))
    # A final run of LA-CLML may be that of MAP's grid, if both choose the same cell.
    shared = sum(run.final and run.method == "la-clml" for run in planned)
    assert len(planned) - shared <= len(made) <= len(planned)
    assert all(entry.finished() for entry in comparison.entries)
    rows = study.rows(comparison)
    assert {row["method"] for row in rows} == {run.method for run in planned}
    assert {(row["network"], row["dataset"], row["paper_prior"]) for row in rows} == {
        (study.network, study.dataset, study.prior)
    }


def test_entries_share_runs_whatever_the_network_is_called(tmp_path):
    setup = tiny_setup(tmp_path)
    fill(setup, Study("ResNet-50", "cifar10"))  # on the laptop LA-CLML comes with it: ConvNeXt-Tiny is the same network
    before = set(setup.records.folder.glob("*.json"))
    fill(setup, Study("ConvNeXt-Tiny", "cifar10", methods=("map-grid", "la-lml", "la-clml", "elbo", "de-elbo")))
    assert set(setup.records.folder.glob("*.json")) == before


def test_runs_have_the_precision_of_their_kind_of_inputs(tmp_path):
    setup = tiny_setup(tmp_path, ("cifar10", "agnews"), precision={"text": "bf16"})
    studies = Study("ResNet-50", "cifar10"), Study("BERT-base", "agnews")
    assert [study.problems(setup)[0].precision for study in studies] == ["no", "bf16"]


def test_la_clml_comes_with_the_grid_only_where_the_paper_has_both():
    assert "la-clml" in Study("ConvNeXt-Tiny", "pets", methods=("map-grid",)).options(PAPER, 1).methods
    assert Study("ResNet-50", "pets", methods=("map-grid",)).options(PAPER, 1).methods == ("map-grid",)
    assert "la-clml" in Study("ResNet-50", "pets", methods=("map-grid",)).options(LAPTOP, 1).methods
    assert Study("ResNet-50", "pets", "L2-zero", methods=("map-grid",)).options(LAPTOP, 1).methods == ("map-grid",)
    assert "la-clml" not in Study("ConvNeXt-Tiny", "pets", methods=("de-elbo",)).options(PAPER, 1).methods


def test_rows_are_of_the_methods_that_are_wanted(tmp_path):
    setup, study = tiny_setup(tmp_path), Study("ConvNeXt-Tiny", "cifar10", methods=("map-grid", "de-elbo"))
    assert {row["method"] for row in study.rows(fill(setup, study))} == {"map-grid", "de-elbo"}


def test_what_is_missing_is_noted_and_nothing_at_all_is_refused(tmp_path):
    setup = tiny_setup(tmp_path)
    studies = [Study("ResNet-50", name, prior) for name in ("cifar10", "pets") for prior in ("L2-zero", "PTYL")]
    fill(setup, studies[0])
    made, notes = make_studies(studies, setup)
    assert [study for study, _ in made] == studies[:1]
    assert notes == [
        "the prior PTYL was left out: it needs the posterior of a source task",
        "Pet-37 was left out: data=pets=FOLDER was not given",
    ]
    with pytest.raises(ValueError, match="no data: data=FOLDER names a folder that has pets"):
        make_studies(studies[2:], setup)
    with pytest.raises(ValueError, match="prior PTYL needs"):
        studies[1].problems(setup)
