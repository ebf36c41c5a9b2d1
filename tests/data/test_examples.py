from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deelbo.data.examples import Data, Examples, equal_subset, split, stratified_subset
from deelbo.data.targets import Targets, index_labels


@given(st.lists(st.integers(0, 4), min_size=5, max_size=80), st.data())
def test_subset_keeps_the_classes(labels, data):
    classes = len(set(labels))
    number = data.draw(st.integers(classes, len(labels)))
    chosen = stratified_subset(labels, number, seed=data.draw(st.integers(0, 9)))
    assert len(set(chosen)) == len(chosen) == number
    counts, whole = Counter(labels[i] for i in chosen), Counter(labels)
    assert set(counts) == set(whole)
    for label, count in counts.items():
        share = number * whole[label] / len(labels)
        assert count <= whole[label]
        assert share - 1 < count < share + 1 or count == 1 or 1 in counts.values()


def test_subset_of_a_balanced_set_is_balanced_and_depends_on_the_seed():
    labels = [i % 10 for i in range(1000)]
    first, again, other = (stratified_subset(labels, 100, seed) for seed in (1001, 1001, 2001))
    assert set(Counter(labels[i] for i in first).values()) == {10}
    assert first == again != other
    with pytest.raises(ValueError, match="between 10"):
        stratified_subset(labels, 5, 0)


def test_as_many_of_every_class():
    """93 of each of the 37 breeds of Pet-37, whose classes have 93 to 100 training images, are 3,441."""
    labels = [c for c in range(37) for _ in range(93 + c % 8)]
    chosen = equal_subset(labels, 93, 1001)
    assert len(chosen) == len(set(chosen)) == 3441
    assert set(Counter(labels[i] for i in chosen).values()) == {93}
    assert chosen == equal_subset(labels, 93, 1001) != equal_subset(labels, 93, 2001)
    proportional = Counter(labels[i] for i in stratified_subset(labels, 3441, 1001))
    assert set(proportional.values()) != {93}  # what a number of examples gives
    with pytest.raises(ValueError, match="94 examples of each class: choose between 1 and 93"):
        equal_subset(labels, 94, 0)


def data(number=20, test=None):
    def examples(n):
        return Examples([str(i) for i in range(n)], [i % 2 for i in range(n)], [str(i) for i in range(n)])

    return Data("text", Targets("classification", ["a", "b"]), examples(number), test and examples(test))


def test_split():
    whole = split(data(), 8, 0.2, seed=0)
    assert (len(whole.train), len(whole.test)) == (8, 4)
    assert not set(whole.train.inputs) & set(whole.test.inputs)
    with pytest.raises(ValueError, match="have a test set"):
        split(data(test=4), None, 0.2, 0)
    with pytest.raises(ValueError, match="between 0 and 1"):
        split(data(), None, 1.5, 0)
    with pytest.raises(ValueError, match="train_size=30, but there are 20"):
        split(data(), 30, None, 0)
    assert Counter(split(data(), None, 0.2, 0, per_class=3).train.labels) == {0: 3, 1: 3}
    with pytest.raises(ValueError, match=r"per_class=11, but there are fewer training examples of a \(10\), b \(10\)"):
        split(data(), None, None, 0, per_class=11)
    with pytest.raises(ValueError, match="train_size=4 and per_class=2 contradict each other"):
        split(data(), 4, None, 0, per_class=2)


def test_checks():
    single = Data("text", Targets("classification", ["a"]), Examples(["x"], [0], ["x"]))
    with pytest.raises(ValueError, match="single class"):
        single.checked()
    with pytest.raises(ValueError, match="no training example of class b"):
        Data("text", Targets("classification", ["a", "b"]), Examples(["x"], [0], ["x"])).checked()


def test_labels():
    assert index_labels(["10", "9", "10"], ["9"]) == (["9", "10"], [1, 0, 1], [0])
    with pytest.raises(ValueError, match="never saw: fish"):
        index_labels(["cat", "dog"], ["fish"])


def test_fingerprint_notices_changes():
    one, same, other = data(), data(), data()
    other.train.inputs[3] = "changed"
    assert one.fingerprint() == same.fingerprint() != other.fingerprint()


def test_fingerprint_is_of_the_whole_content(tmp_path):
    def of(*inputs):
        return Data(
            "text", Targets("classification", ["a", "b"]), Examples(list(inputs), [0, 1], ["", ""])
        ).fingerprint()

    assert of("ab", "c") != of("a", "bc")
    file = tmp_path / "image.png"
    seen = set()
    for end in (b"x", b"y"):
        file.write_bytes(bytes(2**17) + end)
        seen.add(of(file, "c"))
    file.unlink()
    seen.add(of(file, "c"))  # a broken link is for the decoder to tell
    assert len(seen) == 3
