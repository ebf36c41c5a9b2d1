"""Sharded weights (FSDP2) in two and four gloo processes against one process on the joint batch."""

import socket

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import deelbo
from deelbo import _shards
from shared import processes, sharded
from shared.cases import Net, batch
from shared.sharded import Training

pytestmark = pytest.mark.slow

TRAININGS = {
    "explicit": Training(),
    "attached": Training(attached=True),
    "explicit, micro-batches": Training(micro_batches=3),
    "attached, micro-batches": Training(attached=True, micro_batches=3),
    "explicit, no_sync": Training(micro_batches=3, synchronized=False),
    "attached, no_sync": Training(attached=True, micro_batches=3, synchronized=False),
    "attached, weights kept": Training(attached=True, micro_batches=2, synchronized=False, kept=True),
    "per layer": Training(prior="per_layer"),
    "l2-zero by gradient": Training(prior="l2_zero", scale_update="gradient"),
    "attached, clipped": Training(attached=True, max_norm=0.05),
    "attached by gradient, clipped": Training(attached=True, scale_update="gradient", max_norm=0.05),
    "group of modules": Training(attached=True, micro_batches=2, synchronized=False, grouped=True),
    "frozen weight": Training(attached=True, micro_batches=2, synchronized=False, frozen=True),
    "device path": Training(micro_batches=2, device_path=True),
    "device path, attached, no_sync": Training(attached=True, micro_batches=2, synchronized=False, device_path=True),
}
REPLICATED = {
    "replicas": Training(replicas=2),
    "replicas, attached, no_sync": Training(attached=True, micro_batches=3, synchronized=False, replicas=2),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What every process has learned in every training, by number of processes and name of the training."""
    found = {}
    for world, trainings in ((2, TRAININGS), (4, TRAININGS | REPLICATED)):
        folder = tmp_path_factory.mktemp(f"of{world}")
        processes.start_several(world, sharded.train_all, world, str(folder), list(trainings.values()))
        for number, name in enumerate(trainings):
            found[world, name] = [torch.load(folder / f"{number}-{rank}.pt") for rank in range(world)]
    return found


@pytest.mark.parametrize(("world", "name"), [(2, n) for n in TRAININGS] + [(4, n) for n in TRAININGS | REPLICATED])
def test_processes_with_shards_learn_what_one_learns_on_the_joint_batch(results, world, name):
    first, *others = results[world, name]
    for other in others:
        assert all(torch.equal(first[key], other[key]) for key in first)  # bit for bit
    joint = sharded.train((TRAININGS | REPLICATED)[name], world)
    assert (joint["scale"] / 0.3).item() not in (pytest.approx(1.2**3), pytest.approx(0.5**3))  # not at its limits
    for key in joint:
        torch.testing.assert_close(first[key], joint[key], rtol=1e-7, atol=1e-9, msg=key)


SAVED = [Training(), Training(attached=True), Training(attached=True, optimizer="AdamW")]


def test_saved_by_four_processes_and_resumed_by_two(tmp_path):
    processes.start_several(4, sharded.save_in_the_middle, 4, str(tmp_path), SAVED)
    (tmp_path / "resumed").mkdir()
    processes.start_several(2, sharded.resume, 2, str(tmp_path), SAVED)
    for number in range(len(SAVED)):
        whole = torch.load(tmp_path / f"whole-{number}-0.pt")
        for rank in range(2):
            resumed = torch.load(tmp_path / f"resumed-{number}-{rank}.pt")
            for key in whole:
                torch.testing.assert_close(resumed[key], whole[key], rtol=1e-7, atol=1e-9, msg=key)


@pytest.mark.parametrize("world", [1, 3, 4])
def test_draws_are_equal_for_every_number_of_processes(tmp_path, world):
    processes.start_several(world, sharded.draw_all, world, str(tmp_path))
    torch.manual_seed(0)
    one = sharded.draw()
    assert abs(one["table"].std() - 1) < 0.01
    for rank in range(world):
        for drawn in torch.load(tmp_path / f"{rank}.pt"):
            for name in ("table", "body.weight", "other"):
                assert torch.equal(drawn[name], one[name]), name


def test_accelerate_shards_and_accumulates(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    training = Training(attached=True, micro_batches=2, synchronized=False)
    processes.start_two(sharded.train_with_accelerate, str(tmp_path), port, training)
    joint = sharded.train(training, 2)
    for rank in range(2):
        found = torch.load(tmp_path / f"{rank}.pt")
        for key in found:
            torch.testing.assert_close(found[key], joint[key], rtol=1e-7, atol=1e-9, msg=key)


@pytest.fixture
def one_process(tmp_path):
    with sharded.process_group(0, 1, tmp_path):
        yield


@pytest.mark.usefixtures("one_process")
def test_what_cannot_be_sharded_is_refused_by_name():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Shard

    net = sharded.shard(Net())
    with pytest.raises(ValueError, match=r"DiagonalPosterior does not support sharded weights \(FSDP2\)"):
        deelbo.DiagonalPosterior(net)
    size = sum(p.numel() for name, p in net.named_parameters() if not name.startswith("head"))
    with pytest.raises(ValueError, match=r"low rank \(PTYL\) do not support sharded weights"):
        deelbo.priors.ptyl(net, "head", torch.zeros(size), torch.ones(size), torch.zeros(2, size), rank=2)

    mesh = init_device_mesh("cpu", (1,))
    net = fully_shard(Net(), mesh=mesh, shard_placement_fn=lambda p: Shard(1) if p.ndim > 1 else None)
    with pytest.raises(
        ValueError, match=r'"body.weight" is sharded as \(Shard\(dim=1\),\); only shards of dimension 0'
    ):
        deelbo.IsotropicPosterior(net)
    net = Net()
    fully_shard(net, mesh=mesh, ignored_params={net.head.bias})
    with pytest.raises(ValueError, match=r'"head.bias" is not sharded over the same processes'):
        deelbo.IsotropicPosterior(net)


@pytest.mark.usefixtures("one_process")
def test_a_second_backward_pass_is_refused():
    net, training = sharded.shard(Net()), Training(attached=True)
    objective, _ = sharded.make(net, training)
    before = {name: sharded.whole(p) for name, p in objective.posterior.means.items()}
    loss = F.cross_entropy(net(batch()[0]), batch()[1])
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match=r"sharded weights \(FSDP2\) do not support a second backward pass"):
        loss.backward()
    assert all(torch.equal(sharded.whole(p), before[name]) for name, p in objective.posterior.means.items())


@pytest.mark.usefixtures("one_process")
def test_a_change_inside_of_a_draw_is_noticed():
    net = sharded.shard(Net())
    objective, optimizer = sharded.make(net, Training())

    def step_inside():
        with objective.posterior.sample():
            F.cross_entropy(net(batch()[0]), batch()[1]).backward()
            optimizer.step()

    with pytest.raises(RuntimeError, match=r"changed inside the posterior.sample\(\) block"):
        step_inside()


@pytest.mark.usefixtures("one_process")
def test_the_prior_mean_may_be_a_plain_vector():
    net = sharded.shard(nn.Sequential(nn.Linear(3, 2)), whole=True)
    group = deelbo.priors.PriorGroup(net.parameters(), mean=torch.arange(8.0))
    assert all(_shards.is_sharded(mean) for mean in group.mean.buffers())
    assert torch.equal(torch.cat([sharded.whole(mean).flatten() for mean in group.mean.buffers()]), torch.arange(8.0))
