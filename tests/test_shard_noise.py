"""The noise of any division of a weight into shards is that of the whole weight."""

import itertools

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deelbo import _shard_noise
from deelbo._noise import standard_normal
from deelbo._shard_noise import ShardNoise, pieces_of
from deelbo._weight_passes import CPU_CHUNK


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 3 * CPU_CHUNK), st.lists(st.floats(0, 1), max_size=4), st.integers(0, 5))
def test_shards_get_their_parts_of_the_noise(numbers, cuts, first):
    like = torch.empty(0)
    sizes = [min(CPU_CHUNK, numbers - begin) for begin in range(0, numbers, CPU_CHUNK)]
    whole = torch.cat([standard_normal(like, 7, first + k, size).clone() for k, size in enumerate(sizes)])
    ends = [0, *sorted(round(cut * numbers) for cut in cuts), numbers]
    parts = []
    for begin, end in itertools.pairwise(ends):
        pieces = pieces_of(numbers, begin, end, first)
        assert sum(piece.end - piece.begin for piece in pieces) == end - begin
        assert len(pieces) == 1 or all(piece.begin < piece.end for piece in pieces)
        parts += [piece.noise(like, 7).clone() for piece in pieces]
    assert torch.equal(torch.cat(parts), whole)


def test_inner_product_with_gradients_of_whole_weights():
    weights = [torch.zeros(5, dtype=torch.float64), torch.zeros(2, CPU_CHUNK, dtype=torch.float64), torch.zeros(3)]
    noise = ShardNoise(weights)
    drawn = [torch.cat([standard_normal(weights[1], 9, k, CPU_CHUNK).clone() for k in (1, 2)])]
    drawn.append(standard_normal(weights[2], 9, 3).clone())
    grads = [torch.randn(CPU_CHUNK, 2, dtype=torch.float64).T, torch.randn(3, dtype=torch.float64)]
    expected = sum(torch.dot(eps.double(), grad.flatten()) for eps, grad in zip(drawn, grads, strict=True))
    stranger = (torch.zeros(4), torch.ones(4))  # a deterministic parameter has no noise
    gradients = [(weights[1], grads[0]), stranger, (weights[2], grads[1])]
    torch.testing.assert_close(noise.product_with(gradients, 9), expected)
    assert noise.product_with([], 9) == 0


def test_chunks_of_whole_weights_have_the_numbers_that_they_have_without_shards():
    weights = [torch.zeros(5), torch.zeros(2 * CPU_CHUNK + 1), torch.zeros(0), torch.zeros(3)]
    noise = ShardNoise(weights)
    for k, size in enumerate((5, CPU_CHUNK, CPU_CHUNK, 1, 0, 3)):
        like = torch.empty(size)
        assert torch.equal(noise(like, 1, k).clone(), standard_normal(like, 1, k))
    assert _shard_noise.Piece(0, 3, 2, 2).noise(torch.empty(0), 1).numel() == 0
