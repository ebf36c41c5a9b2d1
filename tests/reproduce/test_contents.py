"""Names, numbers and labels of the paper's tables and figures."""

import pytest

from deelbo.reproduce import CONTENTS, ENTRIES
from deelbo.reproduce.contents import find

# Every \label of a figure or table in the paper's source.
LABELS = {
    *("fig:elbo_comparison", "fig:caseA_regression_demo", "fig:computational_time_comparison"),
    *("tab:transfer_learning_methods", "tab:computational_time_comparison", "fig:rff_gp_comparison"),
    *("fig:caseA_regression_classification_demo", "fig:rff_varying_kappa", "fig:convnext_tiny_varying_kappa_acc"),
    *("fig:convnext_tiny_varying_kappa_nll", "fig:convnext_tiny_computational_time_comparison"),
    *("fig:vit_b_16_computational_time_comparison", "fig:resnet_50_computational_time_comparison"),
    *("fig:bert_base_computational_time_comparison", "tab:image_acc", "tab:image_nll", "tab:image_ece"),
    *("fig:train_eval_comparison", "tab:text_acc", "tab:text_nll", "fig:iwelbo_comparison"),
}


def test_everything_in_the_paper_is_an_entry():
    assert {place.label for place in CONTENTS if place.label} == LABELS
    assert sorted(place.name for place in CONTENTS) == sorted(ENTRIES)


@pytest.mark.parametrize(
    ("word", "names"),
    [
        ("fig-3", ["fig-3"]),
        ("Fig. 3", ["fig-3"]),
        ("Figure B.8", ["fig-b8"]),
        ("table 2", ["tab-2"]),
        ("fig-1", ["fig-1a", "fig-1b", "fig-1c"]),
        ("Fig. 1c", ["fig-1c"]),
        ("tab:image_ece", ["tab-image-ece"]),
        ("Tab. B.8", ["tab-text-nll"]),
        ("fig:elbo_comparison", ["fig-1a", "fig-1b", "fig-1c"]),
        ("diagonal", ["diagonal"]),
    ],
)
def test_what_a_user_may_write(word, names):
    assert find(word) == names


def test_all_is_everything_in_the_papers_order():
    assert find("all") == [place.name for place in CONTENTS]


def test_a_number_that_the_paper_has_twice_is_asked_back():
    with pytest.raises(ValueError, match=r"twice: tab-image-acc \(tab:image_acc\) and tab-image-ece"):
        find("tab-b6")


@pytest.mark.parametrize("word", ["fig-9", "figure", "", "b8", "fig-"])
def test_unknown_names_are_refused(word):
    with pytest.raises(ValueError, match=r"all or one of fig-1a, fig-1b"):
        find(word)
