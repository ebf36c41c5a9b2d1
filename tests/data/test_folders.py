import pytest

from deelbo.data import Targets, load_data, load_labelled
from shared.pictures import image_folder, picture


def test_train_and_test(tmp_path):
    data = load_data(image_folder(tmp_path))
    assert (data.kind, data.targets.names) == ("image", ["blue", "green", "red"])
    assert (len(data.train), len(data.test)) == (18, 9)
    assert [data.targets.names[label] for label in data.train.labels] == [
        path.parent.name for path in data.train.inputs
    ]


def test_classes_alone_hidden_files_and_others(tmp_path):
    folder = image_folder(tmp_path, test=0) / "train"
    (folder / "blue" / ".DS_Store").touch()
    (folder / "blue" / "notes.txt").touch()
    (folder / "blue" / "deeper").mkdir()
    picture("blue").save(folder / "blue" / "deeper" / "UPPER.JPG", "JPEG")
    (folder / ".git").mkdir()
    data = load_data(folder)
    assert data.test is None
    assert len(data.train) == 19
    assert "1 files that are no images" in data.notes[0]
    assert "notes.txt" in data.notes[0]


def test_wrong_folders(tmp_path):
    with pytest.raises(FileNotFoundError, match="none of the names cifar10"):
        load_data(tmp_path / "nothing")
    with pytest.raises(ValueError, match="has no folders"):
        load_data(tmp_path)
    folder = image_folder(tmp_path / "a")
    (folder / "train" / "white").mkdir()
    with pytest.raises(ValueError, match="class white is empty"):
        load_data(folder)
    folder = image_folder(tmp_path / "b")
    (folder / "test" / "violet").mkdir()
    picture("red").save(folder / "test" / "violet" / "1.png")
    with pytest.raises(ValueError, match="never saw: violet"):
        load_data(folder)
    with pytest.raises(ValueError, match="belongs to a named dataset"):
        load_data(folder, data_dir="x")


def test_labelled_data_for_a_trained_classifier(tmp_path):
    folder = image_folder(tmp_path)
    examples = load_labelled(str(folder), "image", Targets("classification", ["red", "green", "blue"]))
    assert len(examples) == 9
    assert examples.labels[:3] == [2, 2, 2]
    assert (
        load_labelled(str(folder / "train"), "image", Targets("classification", ["red", "green", "blue"])).labels.count(
            0
        )
        == 6
    )
    with pytest.raises(ValueError, match="never saw: red"):
        load_labelled(str(folder), "image", Targets("classification", ["green", "blue"]))
    with pytest.raises(ValueError, match="takes texts"):
        load_labelled(str(folder), "text", Targets("classification", ["red", "green", "blue"]))


def test_folders_that_are_no_classes(tmp_path):
    folder = image_folder(tmp_path / "a")
    (folder / "val").mkdir()
    picture("red").save(folder / "train" / "loose.png")
    notes = load_data(folder).notes
    assert any("not val" in note for note in notes)
    assert any("1 images in no class" in note for note in notes)
    (folder / "train").rename(folder / "training")
    with pytest.raises(ValueError, match="has test, training, val: call the folder"):
        load_data(folder)


def test_links_are_followed(tmp_path):
    folder = image_folder(tmp_path / "a", test=0) / "train"
    image_folder(tmp_path / "b")
    (folder / "red" / "more").symlink_to(tmp_path / "b" / "train" / "red")
    assert len(load_data(folder).train) == 24
