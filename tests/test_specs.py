"""Which data and which model, as a user names them."""

import pytest
import torch

from deelbo.specs import DataSpec, ModelSpec
from shared.pictures import image_folder


def test_data_are_read_as_the_spec_says(tmp_path):
    table = tmp_path / "rows.csv"
    table.write_text("body,price,text\nball goal,1,x\nbank stock,2,y\n,3,z\n")
    data = DataSpec(str(table), text_column="body", label_column="price", task="regression", skip_bad=True).read()
    assert (data.kind, data.targets.task, data.targets.names) == ("text", "regression", ["price"])
    assert data.train.inputs == ["ball goal", "bank stock"]
    assert len(data.skipped) == 1
    with pytest.raises(FileNotFoundError):
        DataSpec(str(tmp_path / "none")).read()


@pytest.mark.parametrize("place", ["train", "train/red/run", "test/run", "other/../train/run"])
def test_a_run_among_the_images_is_refused(tmp_path, place):
    spec = DataSpec(str(image_folder(tmp_path / "data")))
    with pytest.raises(ValueError, match="is among the data"):
        spec.check_outside(tmp_path / "data" / place)


def test_a_run_beside_the_images_is_fine(tmp_path):
    folder = image_folder(tmp_path / "data")
    for place in (folder / "run", folder, tmp_path / "run", tmp_path / "training"):
        DataSpec(str(folder)).check_outside(place)
    with pytest.raises(ValueError, match="is among the data"):
        DataSpec(str(folder / "train")).check_outside(folder / "train" / "run")  # here, folders are classes
    table = tmp_path / "rows.csv"
    table.touch()
    DataSpec(str(table)).check_outside(tmp_path)
    DataSpec("cifar10").check_outside(tmp_path)


def test_the_seed_decides_the_new_classifier(tmp_path):
    data = DataSpec(str(image_folder(tmp_path / "data"))).read()
    spec = ModelSpec("shared.pictures:small", image_size=40)
    weights = []
    for seed in (1, 1, 2):
        network, reader = spec.load(data, seed)
        weights.append(network.fc.weight)
        assert (reader.image.size, reader.targets) == (40, data.targets)
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
