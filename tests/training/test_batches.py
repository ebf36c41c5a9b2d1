import pytest
import torch

from deelbo.training.batches import (
    collated,
    even_parts,
    fetch,
    in_order,
    indices_of_step,
    split_labels,
    steps_per_epoch,
)


def test_an_epoch_is_a_permutation_without_its_incomplete_batch():
    assert steps_per_epoch(10, 3) == 3
    seen = [i for step in range(3) for i in indices_of_step(10, 3, seed=1, step=step)]
    assert len(set(seen)) == 9
    assert indices_of_step(10, 3, 1, 0) == indices_of_step(10, 3, 1, 0)
    assert indices_of_step(10, 3, 1, 0) != indices_of_step(10, 3, 1, 3)
    assert sorted(indices_of_step(5, 128, 0, 7)) == [0, 1, 2, 3, 4]


def test_even_parts():
    parts = even_parts(range(10, 75), 64, seed=1)
    assert sorted(len(part) for part in parts) == [32, 33]
    assert sorted(i for part in parts for i in part) == list(range(10, 75))
    assert even_parts(range(5), 8, seed=1) != [list(range(5))]


def test_whole_dataset_in_order():
    data = torch.utils.data.TensorDataset(torch.arange(7.0), torch.arange(7))
    batches = list(in_order(data, 3, torch.device("cpu")))
    assert torch.cat([y for _, y in batches]).tolist() == list(range(7))


def test_labels_of_pairs_and_dictionaries():
    assert split_labels((1, 2)) == (1, 2)
    assert split_labels({"input_ids": 1, "labels": 2}) == ({"input_ids": 1}, 2)
    with pytest.raises(ValueError, match="pairs"):
        split_labels(torch.zeros(3))


class Noisy(torch.utils.data.Dataset):
    """Examples with noise from the global generator; `skip` draws it without making an example."""

    def __init__(self):
        self.made = []

    def __getitem__(self, index):
        self.made.append(index)
        return index + torch.rand(2), index

    def skip(self, index):
        torch.rand(2)


def test_a_part_of_a_batch_is_augmented_as_in_the_whole():
    indices, device = [5, 2, 9, 4, 7], torch.device("cpu")
    torch.manual_seed(1)
    whole, labels = fetch(Noisy(), indices, device)
    for part in range(2):
        dataset = Noisy()
        torch.manual_seed(1)
        inputs, own = collated(dataset, indices, part, 2)
        assert own.tolist() == labels[part::2].tolist() == dataset.made
        assert torch.equal(inputs, whole[part::2])
