import os
import signal
import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deelbo import _weight_passes as _chunks
from deelbo._noise import standard_normal
from deelbo._seeds import mix
from deelbo._weight_passes import ChunkCache, TensorList, flat, grad_chunks, over_chunks, split


def test_flat_follows_memory_order():
    weight = torch.randn(4, 3, 5, 5).to(memory_format=torch.channels_last)
    view = flat(weight)
    view[0] = 7.0
    assert weight[0, 0, 0, 0] == 7.0
    assert torch.equal(view.sort().values, weight.flatten().sort().values)
    assert flat(torch.zeros(3, dtype=torch.complex64)).shape == (6,)
    with pytest.raises(ValueError, match="no dense block"):
        flat(torch.zeros(4, 4)[:, :2])


def test_sum_over_many_chunks_keeps_float64_accuracy():
    values = torch.randn(10_000_000)
    result = over_chunks(lambda k, chunk: _chunks.sum_of_squares(chunk), ChunkCache()([values]))
    assert float(result) == pytest.approx(float(values.double().square().sum()), rel=1e-13)


@settings(deadline=None, max_examples=20)
@given(size=st.integers(1, 300_000), threads=st.integers(1, 2))
def test_noise_depends_on_the_key_only(size, threads):
    def draw(key):
        def task(k, chunk):
            chunk.copy_(standard_normal(chunk, key, k))

        noise = torch.empty(size)
        over_chunks(task, split(noise), workers=True)
        return noise

    before = torch.get_num_threads()
    reference = draw(3)
    torch.set_num_threads(threads)
    try:
        assert torch.equal(draw(3), reference)
    finally:
        torch.set_num_threads(before)
    assert not torch.equal(draw(4), reference)


def test_noise_is_standard_normal():
    noise = torch.empty(2_000_000)

    def task(k, chunk):
        chunk.copy_(standard_normal(chunk, mix(1, 2), k))

    over_chunks(task, split(noise), workers=True)
    sorted_noise = noise.double().sort().values
    cdf = torch.special.ndtr(sorted_noise)
    steps = torch.arange(1, len(noise) + 1, dtype=torch.float64) / len(noise)
    assert (cdf - steps).abs().max() < 1.63 / len(noise) ** 0.5  # Kolmogorov-Smirnov, 1 %
    first, second = noise[: 1 << 17], noise[1 << 17 : 2 << 17]
    assert abs(float(torch.corrcoef(torch.stack([first, second]))[0, 1])) < 4 / (1 << 8)  # chunks are independent


def test_pass_finishes_before_an_interrupt_is_raised():
    chunks = split(torch.zeros(6_000_000))

    def task(k, chunk):
        if k in (3, 20):
            os.kill(os.getpid(), signal.SIGINT)
        chunk.add_(standard_normal(chunk, 0, k).mul_(0).add_(1))

    with pytest.raises(KeyboardInterrupt):
        over_chunks(task, chunks, workers=True)
    assert all(bool((chunk == 1).all()) for chunk in chunks)


def test_error_in_a_task_is_raised_once():
    def fail(k, chunk):
        raise MemoryError("no room")

    chunks = split(torch.zeros(3))
    with pytest.raises(MemoryError, match="no room"):
        over_chunks(fail, chunks, workers=True)
    assert over_chunks(lambda k, chunk: chunk.sum(), chunks, workers=True) == 0


def test_workers_leave_the_number_of_threads_alone():
    before = torch.get_num_threads()
    over_chunks(lambda k, chunk: chunk.sum(), split(torch.zeros(3)), workers=True)
    result = []
    thread = threading.Thread(target=lambda: result.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert torch.get_num_threads() == before == result[0]


def test_workers_start_no_openmp_threads():
    over_chunks(lambda k, chunk: chunk.sum(), split(torch.zeros(3)), workers=True)
    _chunks._executor().submit(lambda: torch.zeros(1 << 20).add_(1)).result()
    assert _chunks._executor().submit(torch.get_num_threads).result() == 1


def test_cache_notices_that_a_tensor_moved():
    cache, tensor = ChunkCache(), torch.nn.Parameter(torch.randn(5))
    chunks = cache([tensor])
    assert cache([tensor]) is chunks
    tensor.data = tensor.data.double()
    assert cache([tensor])[0].dtype == torch.float64


def test_tensor_list_follows_dtype_and_layout():
    weight = torch.nn.Parameter(torch.randn(4, 3, 2, 2))
    tensors = TensorList([weight.detach().clone()])
    weight.data = weight.data.double().to(memory_format=torch.channels_last)
    (chunk,) = tensors.chunks([weight])
    assert torch.equal(chunk, flat(weight))


def test_gradient_chunks_match_the_layout_of_the_weight():
    weight = torch.nn.Parameter(torch.randn(4, 3, 2, 2).to(memory_format=torch.channels_last))
    weight.grad = torch.arange(48.0).reshape(4, 3, 2, 2)
    (chunk,) = grad_chunks([weight], create=False)
    assert torch.equal(chunk, flat(torch.arange(48.0).reshape(4, 3, 2, 2).to(memory_format=torch.channels_last)))
    weight.grad = None
    assert grad_chunks([weight], create=False) == [None]
    assert grad_chunks([weight], create=True)[0].sum() == 0


def test_sparse_gradients_are_refused():
    embedding = torch.nn.Embedding(5, 2, sparse=True)
    embedding(torch.tensor([1])).sum().backward()
    with pytest.raises(ValueError, match="sparse=False"):
        grad_chunks([embedding.weight], create=False)
