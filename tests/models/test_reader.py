"""How a network reads its inputs."""

import json

import pytest
import torch

from deelbo.data import load_data
from deelbo.data.examples import Examples
from deelbo.models import load_model, restore_model
from shared.pictures import COLOURS, image_folder, picture, text_table, tiny_bert


@pytest.fixture
def images(tmp_path):
    data = load_data(str(image_folder(tmp_path / "data")))
    _, reader = load_model("shared.pictures:small", "image", data.targets, image_size=28)
    return data, reader


def test_two_views_of_the_same_images(images):
    data, reader = images
    seen = []
    augmented, plain = reader.training_sets(data.train, progress=lambda *now: seen.append(now), flip=False)
    assert seen == [(i, 18) for i in range(1, 19)]  # decoded once
    assert augmented.store is plain.store
    assert (augmented.augment, augmented.flip, plain.augment) == (True, False, False)
    assert len(augmented) == len(plain) == 18
    image, label = plain[0]
    assert (image.shape, image.dtype, label) == ((3, 28, 28), torch.uint8, data.train.labels[0])


def test_images_are_normalised_by_the_training_set(images):
    data, reader = images
    assert reader.image.mean is None
    _, plain = reader.training_sets(data.train)
    pixels = torch.cat([plain.store[i].flatten(1) for i in range(18)], 1).double() / 255
    assert reader.image.mean == pytest.approx(pixels.mean(1).tolist(), rel=1e-12)
    assert reader.image.std == pytest.approx(pixels.std(1, unbiased=False).tolist(), rel=1e-9)
    test_set = reader.dataset(data.test)
    batch, labels = test_set.collate([test_set[i] for i in range(len(test_set))])
    raw = torch.stack([test_set[i][0] for i in range(9)]).double() / 255
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (reader.image.mean, reader.image.std))
    torch.testing.assert_close(batch.double(), (raw - mean) / std, rtol=1e-4, atol=1e-4)
    assert labels.tolist() == data.test.labels


def test_the_authors_preprocessing(tmp_path):
    """Squashed to a square, and normalised by the training set although the network has numbers of its own."""
    data = load_data(str(image_folder(tmp_path / "data")))
    spec, size = "torchvision:squeezenet1_1@IMAGENET1K_V1", {"image_size": 56, "pretrained": False}
    _, own = load_model(spec, "image", data.targets, **size)
    _, reader = load_model(spec, "image", data.targets, resize="square", normalize="training-set", **size)
    assert (own.image.square, reader.image.square) == (False, True)
    _, plain = own.training_sets(data.train)
    assert own.image.mean == pytest.approx((0.485, 0.456, 0.406))
    assert plain.store[0].shape == (3, 64, 80)  # of 32 x 40 pixels
    _, plain = reader.training_sets(data.train)
    assert plain.store[0].shape == (3, 64, 64)
    pixels = torch.stack([plain.store[i] for i in range(18)]).double() / 255
    assert reader.image.mean == pytest.approx(pixels.mean((0, 2, 3)).tolist(), rel=1e-12)
    assert reader.image.std == pytest.approx(pixels.std((0, 2, 3), correction=0).tolist(), rel=1e-9)
    _, again = restore_model(json.loads(json.dumps(reader.as_dict())), tmp_path / "none")
    assert again.image == reader.image
    with pytest.raises(ValueError, match="resize='round', but it is one of shorter-side, square"):
        load_model(spec, "image", data.targets, resize="round")
    with pytest.raises(ValueError, match="normalize='training-set' is for images, but the data are texts"):
        load_model("hf:some", "text", data.targets, normalize="training-set")


def test_unreadable_images_are_skipped_or_named(images, tmp_path):
    data, reader = images
    (tmp_path / "data" / "train" / "red" / "0.png").write_bytes(b"bad")
    with pytest.raises(ValueError, match=r"0\.png cannot be read"):
        reader.training_sets(data.train)
    augmented, _ = reader.training_sets(data.train, skip_bad=True)
    assert len(augmented) == 17
    assert [name.split("/")[-2:] for name in reader.bad] == [["red", "0.png"]]
    for path in (tmp_path / "data" / "train" / "red").iterdir():
        path.write_bytes(b"bad")
    with pytest.raises(ValueError, match="no training example of class red"):
        reader.training_sets(data.train, skip_bad=True)


def test_unlabelled_images(images):
    data, reader = images
    reader.training_sets(data.train)
    found = reader.unlabelled([picture(colour) for colour in COLOURS])
    assert len(found) == 3
    assert torch.equal(found[2][0], reader.unlabelled([picture("red")])[0][0])
    assert not torch.equal(found[2][0], found[0][0])


def test_a_network_reads_the_same_after_it_was_stored(images, tmp_path):
    data, reader = images
    reader.training_sets(data.train)
    stored = json.loads(json.dumps(reader.as_dict()))
    assert set(stored) == {"spec", "kind", "targets", "image"}
    network, again = restore_model(stored, tmp_path / "nothing")
    assert network.fc.out_features == 3
    assert (again.image, again.targets) == (reader.image, data.targets)


def test_texts(tmp_path):
    data = load_data(str(text_table(tmp_path / "rows.csv")))
    _, reader = load_model(f"hf:{tiny_bert(tmp_path / 'bert')}", "text", data.targets, max_length=4)
    train, plain = reader.training_sets(data.train)
    assert train is plain  # texts are not augmented
    assert max(len(train[i]["input_ids"]) for i in range(len(train))) == 4
    words = ["ball team", "bank"]
    found = reader.unlabelled(words)
    expected = reader.tokenizer(words)["input_ids"]
    assert [found[i]["input_ids"] for i in range(2)] == expected
    assert reader.dataset(Examples(words, [1, 0], ["a", "b"]))[0]["labels"] == 1
    assert reader.as_dict()["max_length"] == 4
    reader.write_files(tmp_path / "files")
    _, again = restore_model(reader.as_dict(), tmp_path / "files")
    assert again.max_length == 4
