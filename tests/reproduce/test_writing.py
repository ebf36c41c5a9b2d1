"""Files of an entry."""

import json

import pytest

from deelbo.reproduce.contents import Place
from deelbo.reproduce.entry import Claim, Reproduction
from deelbo.reproduce.panels import new_figure
from deelbo.reproduce.writing import check_folder, made, write_entry

PLACE = Place("fig-9", "Fig. 9", "fig:nine")


def test_a_figure_and_its_page(tmp_path):
    figure, axes = new_figure(1, 1)
    axes[0][0].plot([1, 2], [3, 4])
    claims = [Claim("It works", "holds partly", "1 of 2")]
    reproduction = Reproduction({"value": 3.5}, figure, "| a |\n| --- |", claims, ["one was left out"])
    made_with = {"scale": "laptop", "data": ["pets"], "models": {}}
    files = write_entry(PLACE, "what it shows", reproduction, made_with, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fig-9.json", "fig-9.md", "fig-9.png", "fig-9.svg"]
    text = files[2].read_text()
    assert text.startswith(
        "# fig-9: what it shows\n\nFig. 9 of the paper (`fig:nine`). Made with scale laptop; data pets."
    )
    assert "![what it shows](fig-9.png)" in text
    assert "| It works | **holds partly** | 1 of 2 |" in text
    assert "- one was left out" in text
    found = made("fig-9", tmp_path)
    assert found == json.loads(files[3].read_text())
    assert (found["value"], found["made_with"], found["claims"][0]["verdict"]) == (3.5, made_with, "holds partly")


def test_a_table_has_no_picture(tmp_path):
    place = Place("extra", "", "")
    files = write_entry(place, "a table", Reproduction({}, table="| a |"), {"scale": "laptop"}, tmp_path)
    assert [file.name for file in files] == ["extra.md", "extra.json"]
    assert "Beyond the paper." in files[0].read_text()
    assert made("other", tmp_path) is None


def test_the_same_bytes_every_time(tmp_path):
    written = []
    for name in ("a", "b"):
        figure, axes = new_figure(1, 1)
        axes[0][0].plot([1, 2], [3, 4])
        (tmp_path / name).mkdir()
        files = write_entry(PLACE, "title", Reproduction({}, figure), {"scale": "laptop"}, tmp_path / name)
        written.append([file.read_bytes() for file in files])
    assert written[0] == written[1]


def test_folders_that_cannot_be_used(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotADirectoryError, match="not a folder"):
        check_folder(tmp_path / "file")
    check_folder(tmp_path / "new" / "folder")
    assert (tmp_path / "new" / "folder").is_dir()
