"""Two gloo processes against one process on the joint batch."""

from contextlib import nullcontext

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

import deelbo
from shared import processes
from shared.cases import Net, batch

pytestmark = pytest.mark.slow

STEPS = 3


def train(net, call, x, y, attach, posterior_class, micro_batches=1):
    """Train and return what was learned. `call` is the network, perhaps wrapped."""
    posterior = posterior_class(call, init_scale=0.05)
    objective = deelbo.DataEmphasizedELBO(posterior, deelbo.priors.l2_sp(call, head="head"), num_data=12)
    optimizer = torch.optim.SGD(net.parameters() if attach else posterior.parameters(), lr=0.1, momentum=0.9)
    if attach:
        objective.attach(optimizer)
    for _ in range(STEPS):
        optimizer.zero_grad()
        for part in range(micro_batches):
            # All but the last micro-batch keep their gradients on their own rank.
            call.require_backward_grad_sync = part == micro_batches - 1
            with nullcontext() if attach else posterior.sample():
                output = call(x[part::micro_batches])
                (F.cross_entropy(output, y[part::micro_batches]) / micro_batches).backward()
        if not attach:
            objective.backward()
        optimizer.step()
    learned = {name: p.detach().clone() for name, p in net.named_parameters()}
    learned["scale"] = posterior.scale.detach()
    learned["variances"] = torch.tensor(list(objective.prior.variances.values()))
    return learned, (posterior.seed, posterior.draws)


def worker(rank, folder, attach, posterior_class, micro_batches, compiled):
    torch.set_num_threads(1)
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    torch.manual_seed(0)
    net = Net()
    call = DistributedDataParallel(net)
    if compiled:
        call = torch.compile(call, backend="aot_eager")
    torch.manual_seed(rank)  # every rank would draw its own noise
    x, y = batch()
    result = train(net, call, x[rank::2], y[rank::2], attach, posterior_class, micro_batches)
    torch.save(result, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.parametrize(
    ("attach", "posterior_class", "micro_batches", "compiled"),
    [
        (False, deelbo.IsotropicPosterior, 1, False),
        (True, deelbo.IsotropicPosterior, 1, False),
        (False, deelbo.IsotropicPosterior, 2, False),
        (True, deelbo.IsotropicPosterior, 2, False),
        (True, deelbo.IsotropicPosterior, 1, True),
        (False, deelbo.DiagonalPosterior, 2, False),
    ],
)
def test_two_processes_learn_what_one_learns_on_the_joint_batch(
    tmp_path, attach, posterior_class, micro_batches, compiled
):
    processes.start_two(worker, str(tmp_path), attach, posterior_class, micro_batches, compiled)
    (first, draws), (second, other) = (torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1))
    assert draws == other
    assert all(torch.equal(first[key], second[key]) for key in first)

    torch.manual_seed(0)
    net = Net()
    torch.manual_seed(0)  # as rank 0
    x, y = batch()
    order = torch.cat(
        [torch.arange(12)[rank::2][part::micro_batches] for part in range(micro_batches) for rank in (0, 1)]
    )
    size = 12 // micro_batches
    order = order.reshape(micro_batches, size).T.flatten()  # so that x[part::micro_batches] is both ranks' micro-batch
    joint, _ = train(net, net, x[order], y[order], attach, posterior_class, micro_batches)
    for key in joint:
        torch.testing.assert_close(first[key], joint[key], rtol=1e-7, atol=1e-9, msg=key)


def independent(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    torch.manual_seed(rank)
    posterior = deelbo.IsotropicPosterior(Net(), synchronize=False)
    torch.save(posterior.next_key(), f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def test_independent_processes_may_draw_their_own_noise(tmp_path):
    processes.start_two(independent, str(tmp_path))
    assert torch.load(tmp_path / "0.pt") != torch.load(tmp_path / "1.pt")
