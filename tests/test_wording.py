"""Words of messages and tables."""

import csv
import io

import pytest

from deelbo._wording import counted, csv_text, duration, first_line, natural, some_of


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.25, "0.25 s"), (59, "59 s"), (90, "1.5 min"), (5400, "1.5 h"), (4.32e6, "1,200 h")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_numbers_in_names_count():
    assert sorted(["img10", "img9", "a"], key=natural) == ["a", "img9", "img10"]
    assert sorted(["x2y10", "x2y9", "x10"], key=natural) == ["x2y9", "x2y10", "x10"]


def test_lists_are_cut_short():
    assert some_of(["a", "b"]) == "a, b"
    assert some_of(list("abcdef")) == "a, b, c, d and 2 more"
    assert some_of(list("abc"), 2) == "a, b and 1 more"


def test_nouns_follow_their_number():
    assert [counted(n, "image") for n in (0, 1, 1500)] == ["0 images", "1 image", "1,500 images"]
    assert [counted(n, "class") for n in (1, 3)] == ["1 class", "3 classes"]


def test_an_error_is_its_first_line_or_its_type():
    assert first_line(ValueError("\n  what  \nmore")) == "what"
    assert first_line(KeyboardInterrupt()) == "KeyboardInterrupt"


def test_csv_has_every_column_or_the_chosen_ones():
    rows = [{"a": 1, "b": 'say "x", y'}, {"a": 2, "c": "line\nbreak"}]
    assert list(csv.DictReader(io.StringIO(csv_text(rows)))) == [
        {"a": "1", "b": 'say "x", y', "c": ""},
        {"a": "2", "b": "", "c": "line\nbreak"},
    ]
    assert csv_text(rows, ["c", "a"]).splitlines()[0] == "c,a"
