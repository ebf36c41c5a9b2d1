"""The formats of torchvision and Hugging Face, written here as those libraries write them."""

import hashlib
import pickle

import datasets
import numpy as np
import pytest
import scipy.io
import torchvision

from deelbo.data import load_data
from shared.pictures import picture


def test_ag_news_saved_to_disk_and_as_parquet(tmp_path):
    names = ["World", "Sports", "Business", "Sci/Tech"]
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=names)})
    rows = datasets.Dataset.from_dict({"text": list("abcd"), "label": [0, 1, 2, 3]}, features=features)
    datasets.DatasetDict({"train": rows, "test": rows}).save_to_disk(tmp_path / "disk")
    for split in ("train", "test"):
        for folder in ("files/data", f"parts/{split}", f"own/ag_news/{split}"):
            (tmp_path / folder).mkdir(parents=True, exist_ok=True)
            rows.to_parquet(tmp_path / folder / f"{split}-00000-of-00001.parquet")
    for place in ("disk", "files", "parts", "own"):
        data = load_data("ag_news", data_dir=tmp_path / place)
        assert data.targets.names == names
        assert data.train.inputs == list("abcd")
        assert data.test.labels == [0, 1, 2, 3]


def test_datasets_side_by_side(tmp_path):
    for name, labels in (("ag_news", [3, 4]), ("cifar10", [0, 1]), ("pets", [5, 6])):
        (tmp_path / name / "data").mkdir(parents=True)
        column = "text" if name == "ag_news" else "img" if name == "cifar10" else "image"
        rows = datasets.Dataset.from_dict({column: ["a", "b"], "label": labels})
        rows.to_parquet(tmp_path / name / "data" / "train-00000-of-00001.parquet")
    data = load_data("ag_news", data_dir=tmp_path)
    assert data.train.inputs == ["a", "b"]
    assert (data.targets.names, data.train.labels) == (["3", "4"], [0, 1])  # labels without names
    with pytest.raises(ValueError, match=r"flowers102.*cannot be downloaded"):
        load_data("flowers102", data_dir=tmp_path)


def test_parquet_files_that_do_not_fit_together(tmp_path):
    datasets.Dataset.from_dict({"text": ["a"], "label": [0]}).to_parquet(tmp_path / "train-0.parquet")
    datasets.Dataset.from_dict({"other": [1.5]}).to_parquet(tmp_path / "train-1.parquet")
    with pytest.raises(ValueError, match="cannot be read together"):
        load_data("ag_news", data_dir=tmp_path)


def test_cifar10_of_hugging_face(tmp_path):
    features = datasets.Features({"img": datasets.Image(), "label": datasets.ClassLabel(names=["red", "blue"])})
    rows = {"img": [picture("red"), picture("blue")], "label": [0, 1]}
    datasets.DatasetDict({"train": datasets.Dataset.from_dict(rows, features=features)}).save_to_disk(tmp_path)
    data = load_data("cifar10", data_dir=tmp_path)
    assert (data.kind, data.targets.names, data.test) == ("image", ["red", "blue"], None)
    assert isinstance(data.train.inputs[0], bytes)


def test_cifar10_of_torchvision(tmp_path, monkeypatch):
    """The real reader on a small file of the real format; only the checksums are those of our file."""
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()

    def write(name, content):
        (folder / name).write_bytes(pickle.dumps(content))
        return name, hashlib.md5((folder / name).read_bytes()).hexdigest()

    pixels = np.zeros((4, 3072), dtype="uint8")
    batch = write("data_batch_1", {"data": pixels, "labels": [0, 1, 2, 0]})
    names = write("batches.meta", {"label_names": ["a", "b", "c"]})
    cifar = torchvision.datasets.CIFAR10
    monkeypatch.setattr(cifar, "train_list", [list(batch)])
    monkeypatch.setattr(cifar, "test_list", [list(batch)])
    monkeypatch.setattr(cifar, "meta", {"filename": names[0], "key": "label_names", "md5": names[1]})
    data = load_data("cifar10", data_dir=tmp_path)
    assert data.targets.names == ["a", "b", "c"]
    assert (data.train.labels, len(data.test)) == ([0, 1, 2, 0], 4)


def test_pets_of_torchvision(tmp_path):
    base = tmp_path / "oxford-iiit-pet"
    (base / "images").mkdir(parents=True)
    (base / "annotations").mkdir()
    for i, name in enumerate(("Abyssinian_1", "beagle_2")):
        picture("red", i).save(base / "images" / f"{name}.jpg")
    for part in ("trainval", "test"):
        (base / "annotations" / f"{part}.txt").write_text("Abyssinian_1 1 1 1\nbeagle_2 2 2 1\n")
    data = load_data("pets", data_dir=tmp_path)
    assert data.targets.names == ["Abyssinian", "Beagle"]
    assert data.train.labels == [0, 1]


def test_flowers_of_torchvision(tmp_path, monkeypatch):
    base = tmp_path / "flowers-102"
    (base / "jpg").mkdir(parents=True)
    for i in (1, 2):
        picture("red", i).save(base / "jpg" / f"image_{i:05}.jpg")
    scipy.io.savemat(base / "imagelabels.mat", {"labels": np.array([[1, 2]])})
    parts = {"trnid": [[1, 2]], "valid": [[1, 2]], "tstid": [[2, 1]]}
    scipy.io.savemat(base / "setid.mat", {name: np.array(ids) for name, ids in parts.items()})
    flowers = torchvision.datasets.Flowers102
    files = {"label": "imagelabels.mat", "setid": "setid.mat"}
    sums = {key: (file, hashlib.md5((base / file).read_bytes()).hexdigest()) for key, file in files.items()}
    monkeypatch.setattr(flowers, "_file_dict", {**flowers._file_dict, **sums})
    data = load_data("flowers102", data_dir=tmp_path)
    assert len(data.targets.names) == 102
    assert (data.train.labels, data.test.labels) == ([0, 1], [1, 0])


@pytest.mark.parametrize("name", ["cifar10", "ag_news"])
def test_without_data_and_network(tmp_path, monkeypatch, name):
    """What happens on a machine that resolves no name."""
    import socket

    def fail(*arguments, **options):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(ValueError, match=f"{name} is not in .* and cannot be downloaded .*data_dir="):
        load_data(name, data_dir=tmp_path)
