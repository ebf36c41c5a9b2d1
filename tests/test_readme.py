"""What the README shows runs, and it is short; its links and options are tested in test_pages.py."""

import re
import shlex
from pathlib import Path

import torch

import deelbo
from deelbo.cli import main
from shared.pictures import image_folder, picture

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
COMMANDS = [shlex.split(line)[1:] for line in re.findall(r"^deelbo .* my-run.*$", README, re.MULTILINE)]


def test_at_most_700_words():
    assert len(README.split()) <= 700


def test_from_a_folder_of_images_to_predictions(tmp_path, monkeypatch, capsys):
    """The commands of the complete example, with a smaller network and fewer steps, and then its Python."""
    monkeypatch.chdir(tmp_path)
    (image_folder(Path("data"), train=5, test=0) / "train").rename("photos")
    picture("red", 20).save("new-photo.jpg")
    small = ["--steps", "2", "--batch-size", "4", "--learning-rates", "0.1", "--device", "cpu", "--quiet"]
    finetune, predict = COMMANDS
    finetune = [word for word in finetune if word not in ("--time", "10m")]
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


def test_lists_every_command(capsys):
    assert main(["--help"]) == 0
    commands = set(re.findall(r"^[│|] (\w+) ", capsys.readouterr().out, re.MULTILINE))
    assert commands == set(re.findall(r"^deelbo (\w+)  ", README, re.MULTILINE))
