"""Measured throughput: a few real training steps, of the run's own method, which leave nothing behind."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING

from deelbo._distributed import broadcast_integers
from deelbo._modules import eval_mode
from deelbo._seeds import own_randomness
from deelbo.training.batch_norm import train_mode
from deelbo.training.loop import Candidate, View
from deelbo.training.time_budget import Costs

if TYPE_CHECKING:
    from accelerate import Accelerator

FEW = 3  # steps after the first, which is slower: memory is allocated and kernels are chosen
PATIENCE = 10  # times the limit: a first step that takes longer is the only one
FORWARD_BATCHES = 16  # at most, without gradients
_NANO = 10**9

Clock = Callable[[], float]


def measure(candidate: Candidate, limit: float, most: int, clock: Clock) -> Costs:
    """Take some training steps and estimate the objective on a batch; network and random numbers are put back.

    Args:
        candidate: A candidate that is not used for anything else.
        limit: Seconds after which no further step is begun; two steps are taken unless the network is very slow.
        most: Number of steps at most.
        clock: Function that returns seconds.

    Returns:
        What things cost; the same numbers, those of the first process, in all processes.
    """
    network, scaler = candidate.network, candidate.accelerator.scaler
    kept, scaling = copy.deepcopy(network.state_dict()), scaler and scaler.state_dict()
    try:
        with own_randomness(candidate.accelerator.device), eval_mode(network):  # which puts modes back at its end
            return _measured(candidate, limit, most, clock)
    finally:
        network.load_state_dict(kept)
        candidate.optimizer.zero_grad()
        candidate.optimizer.state.clear()  # accelerate keeps the optimizer, but nobody needs its buffers
        if scaler is not None:
            scaler.load_state_dict(scaling)


def _measured(candidate: Candidate, limit: float, most: int, clock: Clock) -> Costs:
    def seconds(work: Callable[[], object], times: int = 1) -> float:
        begin = clock()
        for _ in range(times):
            work()
        return clock() - begin

    def of_first(number: float) -> int:
        return agreed([int(number)], candidate.accelerator)[0]

    step = 0.0
    if most > 0:
        train_mode(candidate.network, candidate.batch_norm, candidate.settings.dropout)
        step = first = seconds(candidate.take_step)
        number = 0 if first > PATIENCE * limit else FEW if FEW * first < limit else 1
        if number := of_first(min(most - 1, number)):
            passed = seconds(candidate.take_step, number)
            more = of_first(min(most - 1 - number, max(0.0, limit - first - passed) * number / max(1e-9, passed)))
            step = (passed + seconds(candidate.take_step, more)) / (number + more)
    candidate.network.eval()
    method, size = candidate.method, min(candidate.num_data, candidate.settings.batch_size)
    size = of_first(max(1.0, size * min(1.0, limit / max(1e-9, step))))  # fewer examples of a slow network
    one = View(candidate, list(range(size)))
    first = seconds(one.log_likelihood)
    batches = of_first(max(1.0, min(FORWARD_BATCHES, candidate.num_data // size, limit / 4 / max(1e-9, first))))
    forward = seconds(View(candidate, list(range(batches * size))).log_likelihood) / batches
    objective, epoch = seconds(lambda: method.objective(one, 1)), seconds(lambda: method.end_epoch(one))
    draw = max(0.0, objective - forward) if method.draws_weights else 0.0  # a pass over the weights, for any examples
    costs = (step, *(cost / size for cost in (forward, objective - draw, epoch)), draw)
    return Costs(*(value / _NANO for value in agreed([round(c * _NANO) for c in costs], candidate.accelerator)))


def agreed(numbers: list[int], accelerator: Accelerator) -> list[int]:
    """Return the numbers of the first process, since all must take the same steps and make the same plan."""
    return numbers if accelerator.num_processes == 1 else broadcast_integers(numbers, accelerator.device)
