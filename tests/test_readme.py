"""What the README shows runs, it is short, and no page links to what is not there."""

import re
import shlex
from pathlib import Path

import pytest
import torch

import deelbo
from deelbo.cli import main
from shared.pictures import image_folder, picture

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
COMMANDS = [shlex.split(line)[1:] for line in re.findall(r"^deelbo .* my-run.*$", README, re.MULTILINE)]
PAGES = [ROOT / "README.md", ROOT / "benchmarks" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_at_most_700_words():
    assert len(README.split()) <= 700


def test_from_a_folder_of_images_to_predictions(tmp_path, monkeypatch, capsys):
    """The commands of the complete example, with a smaller network and fewer steps, and then its Python."""
    monkeypatch.chdir(tmp_path)
    (image_folder(Path("data"), train=5, test=0) / "train").rename("photos")
    picture("red", 20).save("new-photo.jpg")
    small = ["--steps", "2", "--batch-size", "4", "--learning-rates", "0.1", "--device", "cpu", "--quiet"]
    finetune, predict = COMMANDS
    assert main([word.replace("offline:efficientnet_lite0", "shared.pictures:small") for word in finetune] + small) == 0
    assert Path("my-run/report.html").is_file()
    assert main(predict) == 0
    assert "new-photo.jpg" in capsys.readouterr().out
    names = {}
    exec(BLOCKS[0], names)
    assert names["result"].names == ["blue", "green", "red"]
    assert "['blue', 'green', 'red'] tensor([[" in capsys.readouterr().out


def test_with_a_network_of_ones_own(capsys):
    data = torch.utils.data.TensorDataset(torch.randn(40, 5), torch.randint(3, (40,)))
    network = torch.nn.Sequential()
    network.body, network.head = torch.nn.Linear(5, 8), torch.nn.Linear(8, 3)
    names = {"deelbo": deelbo, "model": network, "train_set": data, "test_set": data}
    exec(BLOCKS[1].replace("train_set)", "train_set, steps=5)"), names)
    assert names["result"].settings.steps == 5
    assert "accuracy" in capsys.readouterr().out


def test_loops_of_the_training_loop_page_agree():
    """The explicit loop and the attached one do the same."""
    page = (ROOT / "docs" / "training-loop.md").read_text()
    names, learned = {}, []
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL)[:2]:
        torch.manual_seed(0)
        exec(block, names)
        learned.append(names["prior"].variances)
    assert all(1e-3 < value < 1 for value in learned[0].values())
    assert learned[0] == pytest.approx(learned[1], rel=1e-6)
    x_test, y_test = names["x_test"], names["y_test"]
    assert (names["model"](x_test / 16).argmax(1) == y_test).double().mean() > 0.9


def test_lists_every_command(capsys):
    assert main(["--help"]) == 0
    commands = set(re.findall(r"^[│|] (\w+) ", capsys.readouterr().out, re.MULTILINE))
    assert commands == set(re.findall(r"^deelbo (\w+)  ", README, re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


def anchors(page):
    """Return the anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
