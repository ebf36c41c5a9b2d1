"""Sharded weights (FSDP2) in two and four gloo processes against one process on the joint batch."""

import pytest
import torch

from shared import processes, sharded
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
