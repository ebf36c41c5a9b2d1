"""Trainings with sharded weights (FSDP2) in several gloo processes, and the same ones in one process."""

import dataclasses
import os
from contextlib import contextmanager, nullcontext

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import deelbo
from shared.cases import Net, batch


@dataclasses.dataclass(frozen=True)
class Training:
    """How a network is trained.

    Args:
        attached: Whether hooks of `attach` do the work, or the loop itself.
        micro_batches: Parts of a batch, whose gradients add up.
        synchronized: Whether FSDP averages the gradient of every part; else that of their sum.
        prior: Name of the prior.
        scale_update: How the scale is learned.
        max_norm: Where the whole gradient is clipped.
        device_path: Whether the passes over weights are those of a GPU.
        replicas: Number of replicas of the sharded network (HSDP).
        kept: Whether FSDP keeps the gathered weights after a backward pass.
        grouped: Whether modules share a group of FSDP.
        optimizer: Name of the optimizer.
        frozen: Whether a weight is not trained, as those below adapters are.
    """

    attached: bool = False
    micro_batches: int = 1
    synchronized: bool = True
    prior: str = "l2_sp"
    scale_update: str = "closed-form"
    max_norm: float | None = None
    device_path: bool = False
    replicas: int = 1
    kept: bool = False
    grouped: bool = False
    optimizer: str = "SGD"
    frozen: bool = False


@contextmanager
def process_group(rank, world, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    try:
        yield
    finally:
        dist.destroy_process_group()


@contextmanager
def weight_path(device_path):
    before = os.environ.get("DEELBO_DEVICE_PATH", "0")
    os.environ["DEELBO_DEVICE_PATH"] = str(int(device_path))
    try:
        yield
    finally:
        os.environ["DEELBO_DEVICE_PATH"] = before


def shard(net, replicas=1, grouped=False, whole=False):
    """Shard a network over all processes: its body (unless as a whole), and the rest as root or group of modules."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    world = dist.get_world_size()
    if replicas == 1:
        mesh = init_device_mesh("cpu", (world,))
    else:
        mesh = init_device_mesh("cpu", (replicas, world // replicas), mesh_dim_names=("replicas", "shards"))
    if not whole:
        fully_shard(net.body, mesh=mesh)
    if grouped:
        fully_shard([net.norm, net.head], mesh=mesh)
    return fully_shard(net, mesh=mesh)


def whole(tensor):
    tensor = tensor.detach()
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).clone()


def make(net, training, seed=0, resumed=False):
    posterior = deelbo.IsotropicPosterior(net, init_scale=0.3, seed=seed, scale_update=training.scale_update)
    prior = getattr(deelbo.priors, training.prior)(net, head="head")
    objective = deelbo.DataEmphasizedELBO(posterior, prior, num_data=12)
    parameters = net.parameters() if training.attached else posterior.parameters()
    options = {"lr": 0.1, "momentum": 0.9} if training.optimizer == "SGD" else {"lr": 0.01, "weight_decay": 0.0}
    optimizer = getattr(torch.optim, training.optimizer)(parameters, **options)
    if resumed:  # a step makes the optimizer's state, into which the saved one is loaded
        for parameter in net.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
    if training.attached:
        objective.attach(optimizer, training.max_norm)
    return objective, optimizer


def step(net, objective, optimizer, parts, training):
    """Take a step on micro-batches; return what is seen between a forward pass and its backward pass."""
    sharded = hasattr(net, "set_requires_gradient_sync")
    optimizer.zero_grad()
    for i, (x, y) in enumerate(parts):
        if sharded:
            net.set_requires_gradient_sync(training.synchronized or i == len(parts) - 1)
            net.set_reshard_after_backward(not training.kept)
        with nullcontext() if training.attached else objective.posterior.sample():
            loss = F.cross_entropy(net(x), y) / len(parts)
            with nullcontext() if training.attached else objective.posterior.at_mean():
                seen = evaluate(net)
            loss.backward()
    if not training.attached:
        objective.backward()
        if training.max_norm is not None:
            torch.nn.utils.clip_grad_norm_(net.parameters(), training.max_norm)
    optimizer.step()
    return seen


def evaluate(net):
    """Return outputs for inputs that all processes share."""
    net.eval()
    with torch.no_grad():
        output = net(batch(4, seed=1)[0])
    net.train()
    return output


def learned(net, objective):
    """Return all that is learned, whole and by name; every process must ask."""
    deelbo._shards.reshard(net)
    found = {name: whole(p) for name, p in net.named_parameters()}
    found["scale"] = objective.posterior.scale.detach().clone()
    found["square"] = objective.posterior.square.clone()
    found["curvature"] = torch.tensor(objective.posterior.curvature.state())
    found["variances"] = torch.tensor(list(objective.prior.variances.values()))
    return found


def parts_of_batch(training, world, rank=None):
    """Return the micro-batches of a rank, or those of all ranks together."""
    x, y = batch()
    ranks = range(world) if rank is None else [rank]
    rows = [
        torch.cat([torch.arange(12)[r::world][part :: training.micro_batches] for r in ranks])
        for part in range(training.micro_batches)
    ]
    return [(x[row], y[row]) for row in rows]


def train(training, world, rank=None, steps=3):
    """Train a network, sharded if there is a rank, and return what was learned and seen."""
    torch.manual_seed(0)
    net = Net()
    net.body.weight.requires_grad_(not training.frozen)
    if rank is not None:
        net = shard(net, training.replicas, training.grouped)
    with weight_path(training.device_path if rank is not None else False):
        objective, optimizer = make(net, training, seed=5 + (rank or 0))
        seen = [step(net, objective, optimizer, parts_of_batch(training, world, rank), training) for _ in range(steps)]
        found = learned(net, objective)
        found["during training"], found["after"] = torch.stack(seen), evaluate(net)
        summary = objective.summary()
        found["summary"] = torch.tensor([summary[name] for name in sorted(summary)])
        x, y = batch()
        estimate = objective.estimate_importance_weighted(
            lambda: -F.cross_entropy(net(x), y, reduction="sum"), samples=2
        )
        found["estimate"] = estimate
    return found


def save_in_the_middle(rank, world, folder, trainings):
    """What a process does: train for two steps and save, train for two more and return what was learned."""
    from torch.distributed import checkpoint

    with process_group(rank, world, folder):
        for number, training in enumerate(trainings):
            torch.manual_seed(0)
            net = shard(Net())
            objective, optimizer = make(net, training, seed=5)
            parts = parts_of_batch(training, world, rank)
            for i in range(4):
                if i == 2:
                    checkpoint.save(state(net, objective, optimizer), checkpoint_id=f"{folder}/checkpoint-{number}")
                step(net, objective, optimizer, parts, training)
            torch.save(learned(net, objective), f"{folder}/whole-{number}-{rank}.pt")


def resume(rank, world, folder, trainings):
    """What a process does: load and train for two steps."""
    from torch.distributed import checkpoint

    with process_group(rank, world, f"{folder}/resumed"):
        for number, training in enumerate(trainings):
            torch.manual_seed(9)  # other weights, and so another mean of the prior
            net = shard(Net())
            objective, optimizer = make(net, training, seed=8, resumed=True)
            loaded = state(net, objective, optimizer)
            checkpoint.load(loaded, checkpoint_id=f"{folder}/checkpoint-{number}")
            net.load_state_dict(loaded["model"])
            optimizer.load_state_dict(loaded["optimizer"])
            if "objective" in loaded:
                objective.load_state_dict(loaded["objective"])
            for _ in range(2):
                step(net, objective, optimizer, parts_of_batch(training, world, rank), training)
            torch.save(learned(net, objective), f"{folder}/resumed-{number}-{rank}.pt")


def state(net, objective, optimizer):
    """Return all that is saved; the optimizer's state has the objective's if it is attached."""
    found = {"model": net.state_dict(), "optimizer": optimizer.state_dict()}
    return found if "deelbo" in found["optimizer"] else {**found, "objective": objective.state_dict()}


def train_all(rank, world, folder, trainings):
    """What a process does: several trainings, one after the other, each into a file."""
    with process_group(rank, world, folder):
        for number, training in enumerate(trainings):
            torch.save(train(training, world, rank), f"{folder}/{number}-{rank}.pt")


def train_with_accelerate(rank, folder, port, training):
    """What a process does: train a network that accelerate has sharded, in its own way to accumulate gradients."""
    import accelerate

    torch.set_num_threads(1)
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in place.items()})
    plugin = accelerate.FullyShardedDataParallelPlugin(fsdp_version=2, cpu_ram_efficient_loading=False)
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=training.micro_batches)
    # Without a GPU accelerate would wrap by DDP; all that follows is what it does with GPUs.
    accelerator.state.distributed_type, accelerator.state.fsdp_plugin = accelerate.DistributedType.FSDP, plugin
    torch.manual_seed(0)
    net = Net()
    net, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9))
    posterior = deelbo.IsotropicPosterior(net, init_scale=0.3, seed=5 + rank)
    objective = deelbo.DataEmphasizedELBO(posterior, deelbo.priors.l2_sp(net, head="head"), num_data=12)
    objective.attach(optimizer)
    for _ in range(3):
        for x, y in parts_of_batch(training, 2, rank):
            with accelerator.accumulate(net):
                accelerator.backward(F.cross_entropy(net(x), y))
                optimizer.step()
                optimizer.zero_grad()
    torch.save(learned(net, objective), f"{folder}/{rank}.pt")
    dist.destroy_process_group()


class Large(nn.Module):
    """Weights whose shards begin in the middle of chunks, or are empty."""

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(70_001, 3))
        self.body = nn.Linear(3, 1)
        self.other = nn.Parameter(torch.zeros(150_000))


def draw(world=1, rank=None, device_path=False, replicas=1):
    """Return a draw of all weights of a large network, whole."""
    net = Large()
    torch.nn.init.zeros_(net.body.weight)
    if rank is not None:
        shard(net, replicas)
    with weight_path(device_path):
        posterior = deelbo.IsotropicPosterior(net, init_scale=1.0, seed=3)
        with posterior.sample():
            drawn = {name: whole(p) for name, p in posterior.means.items()}
    assert all(not whole(p).any() for name, p in posterior.means.items() if name != "body.bias")
    return drawn


def draw_all(rank, world, folder):
    """What a process does: draws on both paths, and with replicas."""
    with process_group(rank, world, folder):
        drawn = [draw(world, rank, device_path) for device_path in (False, True)]
        drawn += [draw(world, rank, replicas=2)] if world == 4 else []
        torch.save(drawn, f"{folder}/{rank}.pt")
