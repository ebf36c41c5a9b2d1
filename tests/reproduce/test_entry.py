"""Claims are judged by outcomes."""

import pytest

from deelbo.reproduce import ENTRIES
from deelbo.reproduce.entry import judge


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [([True, True], "holds"), ([True, False], "holds partly"), ([False], "does not hold")],
)
def test_verdicts(outcomes, verdict):
    assert judge("text", outcomes, "numbers").verdict == verdict


def test_every_entry_has_a_title():
    assert all(entry.title for entry in ENTRIES.entries())
