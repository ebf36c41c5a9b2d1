"""What labels stand for is recognised, and they become targets."""

import pytest
import torch

from deelbo.data.targets import Targets, as_tensor, encode, is_missing, recognise_task, translate


def column(*texts):
    return [[text] for text in texts]


@pytest.mark.parametrize(
    ("raw", "task"),
    [
        (column("cat", "dog", "cat"), "classification"),
        (column("0", "1", "2", "1"), "classification"),
        (column(*(str(i % 10) for i in range(500))), "classification"),
        (column("1.5", "2", "3"), "regression"),
        (column(*(str(i) for i in range(18, 90))), "regression"),  # ages
        (column("a|b", "a", ""), "multilabel"),
        ([["0", "1"], ["1", "1"]], "multilabel"),
        ([["0.5", "10"], ["1", "20"]], "regression"),
        (column("1e3", "-2.5", ""), "regression"),
        (column("12 kg", "3"), "classification"),
    ],
)
def test_tasks_are_recognised(raw, task):
    assert recognise_task(raw)[0] == task


def test_classes():
    targets, train, test = encode("classification", ["label"], column("10", "2", "2"), column("10"))
    assert targets == Targets("classification", ["2", "10"])
    assert (train, test) == ([1, 0, 0], [1])
    assert targets.describe() == "2 classes"
    assert targets.strata(train) == train
    with pytest.raises(ValueError, match="training never saw: 7"):
        encode("classification", ["label"], column("1", "2"), column("7"))
    with pytest.raises(ValueError, match="one label column"):
        encode("classification", ["a", "b"], [["1", "2"]], None)


def test_numbers():
    targets, train, test = encode("regression", ["height", "width"], [["1.5", "2"], ["3", "4e1"]], [["0", "-1"]])
    assert train == [[1.5, 2.0], [3.0, 40.0]]
    assert test == [[0.0, -1.0]]
    assert as_tensor(train).dtype == torch.float64
    assert targets.describe() == "2 numbers (height, width)"
    assert targets.strata(train) == [0, 0]
    assert targets.missing(train) == []
    with pytest.raises(ValueError, match="'tall' is not a finite number"):
        encode("regression", ["height"], column("1", "tall"), None)


def test_label_sets():
    targets, train, test = encode("multilabel", ["topics"], column("b| a", "", "b"), column("a"))
    assert targets.names == ["a", "b"]
    assert (train, test) == ([[1, 1], [0, 0], [0, 1]], [[1, 0]])
    assert as_tensor(train).dtype == torch.int64
    assert targets.missing([[0, 1], [0, 0]]) == ["a"]
    with pytest.raises(ValueError, match="training never saw: c"):
        encode("multilabel", ["topics"], column("a|b"), column("c"))
    columns, train, _ = encode("multilabel", ["cat", "dog"], [["0", "1"], ["1", "1"]], None)
    assert columns.names == ["cat", "dog"]
    assert train == [[0, 1], [1, 1]]
    with pytest.raises(ValueError, match="takes 0 and 1, not 'x'"):
        encode("multilabel", ["cat", "dog"], [["0", "x"]], None)
    with pytest.raises(ValueError, match="no training example has a label"):
        encode("multilabel", ["topics"], column("", ""), None)


def test_what_is_missing():
    assert is_missing([""], "classification")
    assert is_missing(["1", ""], "regression")
    assert not is_missing([""], "multilabel")
    assert is_missing(["1", ""], "multilabel")


def test_labels_of_other_data_become_the_runs():
    run = Targets("classification", ["cat", "dog", "cow"])
    assert translate([0, 1], Targets("classification", ["cow", "cat"]), run, "new.csv") == [2, 0]
    with pytest.raises(ValueError, match=r"new\.csv has labels that training never saw: owl"):
        translate([0], Targets("classification", ["owl"]), run, "new.csv")
    labels = Targets("multilabel", ["a", "b", "c"])
    assert translate([[1, 0]], Targets("multilabel", ["c", "zzz"]), labels, "new.csv") == [[0, 0, 1]]
    with pytest.raises(ValueError, match="2 numbers for each example"):
        translate([[1.0, 2.0]], Targets("regression", ["x", "y"]), Targets("regression", ["x"]), "new.csv")
