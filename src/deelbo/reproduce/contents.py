"""The tables and figures of the paper in their order, by which `deelbo reproduce` names and lists them.

The paper's source sets the counter of its tables in the appendix by hand, so that two of them are Tab. B.6 and two are
Tab. B.7; those are named by their labels instead.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """Where an entry is in the paper.

    Args:
        name: Name that users write.
        number: Number in the paper, such as "Fig. 1a"; "" for what the paper does not have.
        label: Label in the paper's source; "" for what the paper does not have.
    """

    name: str
    number: str
    label: str


CONTENTS = (
    Place("fig-1a", "Fig. 1a", "fig:elbo_comparison"),
    Place("fig-1b", "Fig. 1b", "fig:elbo_comparison"),
    Place("fig-1c", "Fig. 1c", "fig:elbo_comparison"),
    Place("fig-2", "Fig. 2", "fig:caseA_regression_demo"),
    Place("tab-1", "Tab. 1", "tab:transfer_learning_methods"),
    Place("fig-3", "Fig. 3", "fig:computational_time_comparison"),
    Place("tab-2", "Tab. 2", "tab:computational_time_comparison"),
    Place("fig-a1", "Fig. A.1", "fig:rff_gp_comparison"),
    Place("fig-a2", "Fig. A.2", "fig:caseA_regression_classification_demo"),
    Place("fig-a3", "Fig. A.3", "fig:rff_varying_kappa"),
    Place("fig-b1", "Fig. B.1", "fig:convnext_tiny_varying_kappa_acc"),
    Place("fig-b2", "Fig. B.2", "fig:convnext_tiny_varying_kappa_nll"),
    Place("fig-b3", "Fig. B.3", "fig:convnext_tiny_computational_time_comparison"),
    Place("fig-b4", "Fig. B.4", "fig:vit_b_16_computational_time_comparison"),
    Place("fig-b5", "Fig. B.5", "fig:resnet_50_computational_time_comparison"),
    Place("fig-b6", "Fig. B.6", "fig:bert_base_computational_time_comparison"),
    Place("tab-image-acc", "Tab. B.6", "tab:image_acc"),
    Place("tab-image-nll", "Tab. B.7", "tab:image_nll"),
    Place("tab-image-ece", "Tab. B.6 (again)", "tab:image_ece"),
    Place("fig-b7", "Fig. B.7", "fig:train_eval_comparison"),
    Place("tab-text-acc", "Tab. B.7 (again)", "tab:text_acc"),
    Place("tab-text-nll", "Tab. B.8", "tab:text_nll"),
    Place("fig-b8", "Fig. B.8", "fig:iwelbo_comparison"),
    Place("diagonal", "", ""),
    Place("model-choice", "", ""),
)


def find(name: str) -> list[str]:
    """Return the names of the entries that a user means: a name, a number, a label of the paper's source, or "all".

    Args:
        name: Such as "fig-3", "Fig. 3", "fig:iwelbo_comparison", "fig-1" (which has three panels) or "all".

    Raises:
        ValueError: If there is no such entry, or two tables of the paper have this number.

    Example:
        >>> from deelbo.reproduce.contents import find
        >>> find("fig-1"), find("Fig. B.8"), find("tab:text_acc")
        (['fig-1a', 'fig-1b', 'fig-1c'], ['fig-b8'], ['tab-text-acc'])
    """
    names = [place.name for place in CONTENTS]
    if name == "all":
        return names
    if name in names:
        return [name]
    wanted = _number(name)
    numbered = [
        place for place in CONTENTS if place.number and _number(place.number.removesuffix(" (again)")) == wanted
    ]
    if len(numbered) > 1:
        which = " and ".join(f"{place.name} ({place.label})" for place in numbered)
        raise ValueError(f"the paper's source gives the number {numbered[0].number} twice: {which}")
    found = numbered or [place for place in CONTENTS if place.label and place.label == name]
    if not found and wanted:
        found = [place for place in CONTENTS if _number(place.number)[:-1] == wanted and place.number[-1:] in "abc"]
    if not found:
        raise ValueError(f"name={name!r}, but it is all or one of {', '.join(names)}")
    return [place.name for place in found]


def _number(text: str) -> str:
    """Return a number such as "Fig. B.8", "fig-b8" or "Figure B8" in one form; "" if it is none."""
    short = text.lower().replace("figure", "fig").replace("table", "tab")
    short = "".join(character for character in short if character.isalnum())
    return short if short[:3] in ("fig", "tab") and any(c.isdigit() for c in short) else ""
