"""The device path, which the CPU takes with DEELBO_DEVICE_PATH=1: kernels and host reads of a step, draws, accuracy."""

import copy
from collections import Counter
from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import deelbo
from shared.cases import Bare, Net, batch, flat_grad
from shared.covariances import low_rank

HOST_READS = ("_local_scalar_dense", "equal", "is_nonzero", "nonzero", "item")
NO_KERNELS = ("empty", "new_empty", "empty_like", "empty_strided", "detach", "alias", "lift_fresh")


@pytest.fixture(autouse=True)
def device_path(monkeypatch):
    monkeypatch.setenv("DEELBO_DEVICE_PATH", "1")


class Count(TorchDispatchMode):
    """Counts the operations that launch a kernel, and those for which the host waits."""

    def __init__(self):
        super().__init__()
        self.kernels, self.reads = Counter(), Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        if name in HOST_READS:
            self.reads[name] += 1
        elif not function.is_view and name not in NO_KERNELS:
            self.kernels[name] += 1
        return function(*args, **(kwargs or {}))


def resnet50():
    import torchvision

    return torchvision.models.resnet50(num_classes=10), torch.randn(2, 3, 32, 32)


def bert_base(layers=12):
    import transformers

    config = transformers.BertConfig(num_hidden_layers=layers, num_labels=10)
    return transformers.BertForSequenceClassification(config), torch.randint(1000, (2, 8))


def bert_of_two_layers():
    return bert_base(layers=2)


def lora():
    import peft

    model, tokens = bert_base()
    config = peft.LoraConfig(task_type="SEQ_CLS", r=4, target_modules=["query", "value"])
    return peft.get_peft_model(model, config), tokens


def ptyl(model, head=None, deviations=5):
    backbone = deelbo.priors.l2_zero(model, head=head).named_groups()["backbone"]
    mean = torch.cat([w.detach().flatten() for w in backbone.weights])
    size = len(mean)
    return deelbo.priors.ptyl(model, head, mean, torch.full((size,), 1e-4), 1e-3 * torch.randn(deviations, size))


PRIORS = {"l2-zero": deelbo.priors.l2_zero, "l2-sp": deelbo.priors.l2_sp, "ptyl": ptyl}
CASES = [
    *((resnet50, prior) for prior in PRIORS),
    (bert_base, "l2-sp"),
    (bert_of_two_layers, "ptyl"),
    (lora, "adapters"),
]


def loss_of(model, inputs):
    output = model(inputs)
    return F.cross_entropy(getattr(output, "logits", output), torch.zeros(len(inputs), dtype=torch.long))


@pytest.mark.slow
@pytest.mark.parametrize("attached", [False, True])
@pytest.mark.parametrize(("network", "prior"), CASES)
def test_a_step_launches_few_kernels_and_reads_nothing(network, prior, attached):
    torch.manual_seed(0)
    model, inputs = network()
    make = PRIORS.get(prior, deelbo.priors.adapters)
    posterior = deelbo.IsotropicPosterior(model)
    objective = deelbo.DataEmphasizedELBO(posterior, make(model), num_data=1000)
    plain = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(plain if attached else posterior.parameters(), lr=1e-3, momentum=0.9, foreach=True)
    if attached:
        objective.attach(optimizer)

    def step():
        optimizer.zero_grad()
        if attached:
            loss_of(model, inputs).backward()
        else:
            with posterior.sample():
                loss_of(model, inputs).backward()
            objective.backward()
        optimizer.step()

    step()
    with Count() as ours:
        step()
    for hook in [objective.posterior.attachment] if attached else []:
        hook.remove()
    with Count() as network_alone:
        optimizer.zero_grad()
        loss_of(model, inputs).backward()
        optimizer.step()
    kernels = ours.kernels - network_alone.kernels
    print(f"{network.__name__}, {prior}, {'attached' if attached else 'explicit'}: {kernels.total()} kernels")
    assert kernels.total() <= 60
    assert ours.reads.total() == network_alone.reads.total()


@pytest.mark.parametrize("attached", [False, True])
def test_a_step_with_weights_in_bfloat16_launches_few_kernels_and_reads_nothing(attached):
    found = []
    for layers in (1, 3):
        torch.manual_seed(0)
        model = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(layers)), torch.nn.Linear(4, 2)).bfloat16()
        posterior = deelbo.IsotropicPosterior(model)
        prior = deelbo.priors.l2_sp(model, head=str(layers))
        objective = deelbo.DataEmphasizedELBO(posterior, prior, num_data=1000)
        parameters = model.parameters() if attached else posterior.parameters()
        optimizer = torch.optim.SGD(parameters, lr=1e-3, momentum=0.9, foreach=True)
        if attached:
            objective.attach(optimizer)
        inputs = torch.randn(5, 4).bfloat16()

        def step(model=model, posterior=posterior, objective=objective, optimizer=optimizer, inputs=inputs):
            optimizer.zero_grad()
            with nullcontext() if attached else posterior.sample():
                loss_of(model, inputs).backward()
            if not attached:
                objective.backward()
            optimizer.step()

        step()
        with Count() as ours:
            step()
        with Count() as network_alone:
            loss_of(copy.deepcopy(model), inputs).backward()
        found.append((ours.kernels - network_alone.kernels).total())
        assert ours.reads.total() == network_alone.reads.total()
    print(f"kernels with 4 and 8 weights in bfloat16: {found}")
    assert found[0] == found[1] <= 90  # SGD's own among them


def test_draws_are_independent_and_standard_normal():
    net = torch.nn.ParameterList(torch.zeros(size) for size in (300_000, 1, 200_000, 7))
    posterior = deelbo.IsotropicPosterior(net, init_scale=1.0, seed=3)

    def draw():
        with posterior.sample(), torch.no_grad():
            return torch.cat([p.detach().clone() for p in net])

    first, second = draw().double(), draw().double()
    cdf = torch.special.ndtr(first.sort().values)
    steps = torch.arange(1, len(first) + 1, dtype=torch.float64) / len(first)
    assert (cdf - steps).abs().max() < 1.63 / len(first) ** 0.5  # Kolmogorov-Smirnov, 1 %
    limit = 4 / len(first) ** 0.5
    assert abs(float(torch.corrcoef(torch.stack([first, second]))[0, 1])) < limit  # two draws
    assert (
        abs(float(torch.corrcoef(torch.stack([first[:200_000], first[300_001:500_001]]))[0, 1])) < 2 * limit
    )  # tensors
    assert abs(float(torch.corrcoef(torch.stack([first[1:], first[:-1]]))[0, 1])) < limit  # neighbours


def test_weights_of_two_precisions_have_their_own_noise():
    net = torch.nn.ParameterList([torch.zeros(1000), torch.zeros(1000, dtype=torch.float64), torch.zeros(500)])
    posterior = deelbo.IsotropicPosterior(net, init_scale=1.0, seed=3)
    prior = deelbo.priors.GaussianPrior({"all": deelbo.priors.PriorGroup(net.parameters())})
    objective = deelbo.DataEmphasizedELBO(posterior, prior, num_data=10)
    with posterior.sample():
        drawn = [p.detach().double().clone() for p in net]
        (sum((p.double() ** 2).sum() for p in net) / 100).backward()
    assert not torch.allclose(drawn[0], drawn[1], atol=0.1)
    assert torch.cat(drawn).std().item() == pytest.approx(1, abs=0.06)
    expected = sum(float((d * d).sum()) for d in drawn) / 50  # <gradient, noise>
    assert float(posterior.raw_scale.grad) == pytest.approx(expected, rel=1e-5)
    objective.backward()
    assert all(bool(p.grad.isfinite().all()) for p in net)


def test_low_rank_covariance_in_float32():
    """Accurate to float32 times the condition of the covariance; the CPU's passes use float64 instead."""
    net = Bare((50, 40), (300,), dtype=torch.float32)
    covariance, dense = low_rank(net, 5)
    group = deelbo.priors.PriorGroup(net.parameters(), None, covariance)
    d = net.vector().double()
    expected = torch.linalg.solve(dense.double(), d)
    assert float(group.quadratic()[0]) == pytest.approx(float(d @ expected), rel=1e-4)
    group.add_gradient(1.0)
    torch.testing.assert_close(
        flat_grad(net.parameters()).double(), expected, rtol=1e-3, atol=1e-4 * expected.abs().max().item()
    )


@pytest.mark.parametrize("low_rank_prior", [False, True])
def test_a_step_can_be_compiled_as_a_whole(low_rank_prior):
    results = []
    for compiled in (False, True):
        torch.manual_seed(0)
        net, (x, y) = Net(), batch()
        posterior = deelbo.IsotropicPosterior(net, init_scale=0.01, seed=1)
        prior = ptyl(net, head="head") if low_rank_prior else deelbo.priors.l2_sp(net, head="head")
        objective = deelbo.DataEmphasizedELBO(posterior, prior, num_data=12)
        optimizer = torch.optim.SGD(posterior.parameters(), lr=0.1)

        def step(net=net, x=x, y=y, posterior=posterior, objective=objective, optimizer=optimizer):
            optimizer.zero_grad()
            with posterior.sample():
                F.cross_entropy(net(x), y).backward()
            objective.backward()
            optimizer.step()

        run = torch.compile(step, backend="aot_eager") if compiled else step
        for _ in range(3):
            run()
        results.append([*flat(net), posterior.scale.item(), *objective.prior.variances.values()])
    assert results[0] == pytest.approx(results[1], rel=1e-9)


def flat(net):
    return torch.cat([p.detach().flatten() for p in net.parameters()]).tolist()
