"""Copies of the means during a draw."""

import torch
from torch import nn

from deelbo.posteriors.saved_means import SavedMeans


def saved(*shapes):
    weights = [nn.Parameter(torch.randn(shape)) for shape in shapes]
    copies = SavedMeans(weights)
    copies.make_room()
    for mean, weight in zip(copies.means, weights, strict=True):
        mean.copy_(weight.detach() + 1)
    return weights, copies


@torch.no_grad()
def test_swapping_exchanges_and_swapping_again_undoes_it():
    weights, copies = saved((3, 4), (5,))
    before = [weight.clone() for weight in weights]
    copies.swap()
    assert all(torch.equal(weight, b + 1) for weight, b in zip(weights, before, strict=True))
    assert all(torch.equal(mean, b) for mean, b in zip(copies.means, before, strict=True))
    copies.swap()
    assert all(torch.equal(weight, b) for weight, b in zip(weights, before, strict=True))


@torch.no_grad()
def test_only_means_that_were_kept_are_written_back():
    weights, copies = saved((3,), (5,), (2,))
    before = [weight.clone() for weight in weights]
    copies.kept = bytearray([1, 0, 1])
    copies.restore()
    assert [bool((weight == b + 1).all()) for weight, b in zip(weights, before, strict=True)] == [True, False, True]
    assert torch.equal(weights[1], before[1])


def test_room_is_made_again_only_for_weights_that_have_moved():
    weights, copies = saved((4, 3, 2, 2))
    first = copies.means[0]
    copies.make_room()
    assert copies.means[0] is first
    weights[0].data = weights[0].data.to(memory_format=torch.channels_last)
    copies.make_room()
    assert copies.means[0].stride() == weights[0].stride() != first.stride()


def test_without_weights_there_is_nothing_to_do():
    copies = SavedMeans([])
    copies.make_room()
    copies.swap()
    copies.restore()
    assert copies.chunks() == ([], [])
