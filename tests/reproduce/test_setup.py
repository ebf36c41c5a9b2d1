"""What a user has: data, models, priors."""

from pathlib import Path

import pytest

from deelbo.reproduce import LAPTOP, PAPER, Setup, find_data


def test_a_folder_of_datasets(tmp_path):
    for name in ("cifar10", "pets", "holidays"):
        (tmp_path / name).mkdir()
    found, data_dir = find_data(str(tmp_path), LAPTOP)
    assert found == {"cifar10": tmp_path / "cifar10", "pets": tmp_path / "pets"}
    assert data_dir is None
    setup = Setup(tmp_path / "out", data=found)
    assert setup.data_spec("pets").data == str(tmp_path / "pets")
    with pytest.raises(ValueError, match="News-4 is missing: data=agnews=FOLDER"):
        setup.data_spec("agnews")


def test_single_folders(tmp_path):
    (tmp_path / "news").mkdir()
    assert find_data(f"agnews={tmp_path / 'news'}", LAPTOP)[0] == {"agnews": tmp_path / "news"}
    with pytest.raises(ValueError, match="the datasets are cifar10, flowers102, pets, agnews"):
        find_data(f"imagenet={tmp_path}", LAPTOP)
    with pytest.raises(FileNotFoundError, match="no such folder"):
        find_data(f"pets={tmp_path / 'nowhere'}", LAPTOP)


def test_folders_without_data(tmp_path):
    with pytest.raises(FileNotFoundError, match="has none of the folders cifar10"):
        find_data(str(tmp_path), LAPTOP)
    with pytest.raises(FileNotFoundError, match="no such folder"):
        find_data(str(tmp_path / "nowhere"), LAPTOP)


def test_the_papers_datasets_have_names(tmp_path):
    found, data_dir = find_data(str(tmp_path), PAPER)
    spec = Setup(tmp_path / "out", PAPER, found, data_dir).data_spec("agnews")
    assert (spec.data, spec.data_dir) == ("ag_news", str(tmp_path))


def test_models_and_priors():
    setup = Setup(Path("out"), models={"image": "timm:resnet18"}, source_posteriors={"PTYL": "source.safetensors"})
    assert setup.model_spec("ResNet-50", "image").model == "timm:resnet18"
    assert setup.model_spec("ResNet-50", "image").image_size == 64  # the scale's
    assert setup.model_spec("BERT-base", "text").model == "offline:minilm"
    assert setup.prior("L2-zero") == "l2-zero"
    assert setup.prior("PTYL") == f"ptyl:{Path('source.safetensors').absolute()}"
    assert setup.prior("PTYL (SSL)") is None
