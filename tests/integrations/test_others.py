"""The recipes of docs/integrations.md for libraries without a module of their own, beside explicit loops."""

import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import deelbo
from shared.attached import assert_same_gradients

pytestmark = pytest.mark.slow
PAGE = (Path(__file__).parents[2] / "docs" / "integrations.md").read_text()


@pytest.fixture(autouse=True)
def _fresh():
    """Forget what loaders of earlier tests have left in accelerate, which would end an accumulation early."""
    accelerate = pytest.importorskip("accelerate")
    accelerate.state.GradientState._reset_state()
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)


def recipe(word):
    """Return the code block of the page that has a word."""
    fenced = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (block,) = [block for block in fenced if word in block]
    return block


def run(*words):
    """Run recipes one after the other, and return their names."""
    names = {}
    for word in words:
        torch.manual_seed(0)
        exec(compile(recipe(word), word, "exec"), names)
    return names


class Explicit:
    """Training of a network that is written out.

    Args:
        network: The network.
        optimizer: Makes an optimizer of parameters.
        num_data: N.
    """

    def __init__(self, network, optimizer, num_data):
        self.network = network
        posterior = deelbo.IsotropicPosterior(network, seed=0)
        self.objective = deelbo.DataEmphasizedELBO(posterior, deelbo.priors.l2_sp(network), num_data)
        self.optimizer = optimizer(network)
        self.optimizer.param_groups[0]["params"].extend(posterior.scale_parameters())
        self.losses = []

    def step(self, *batches):
        self.optimizer.zero_grad()
        self.losses.append(0.0)
        for x, y in batches:
            with self.objective.posterior.sample():
                loss = F.cross_entropy(self.network(x), y) / len(batches)
                loss.backward()
            self.losses[-1] += loss.item()
        self.objective.backward()
        torch.nn.utils.clip_grad_norm_(self.objective.posterior.parameters(), 1.0)
        self.optimizer.step()

    def assert_same(self, network, objective):
        for (name, one), two in zip(network.state_dict().items(), self.network.state_dict().values(), strict=True):
            torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-6, msg=f"{name}: {{}}".format)
        assert objective.prior.variances == pytest.approx(self.objective.prior.variances, rel=1e-4)
        assert objective.posterior.scale.item() == pytest.approx(self.objective.posterior.scale.item(), rel=1e-4)


def sgd(network):
    return torch.optim.SGD(network.parameters(), lr=0.1)


def make_network(names):
    torch.manual_seed(0)
    return names["Network"]()


def test_accelerate():
    pytest.importorskip("accelerate")
    names = run("def attach", "import accelerate")
    explicit = Explicit(make_network(names), sgd, 24)
    batches = list(torch.utils.data.DataLoader(names["examples"], batch_size=6))
    for start in (0, 2):
        explicit.step(*batches[start : start + 2])
    explicit.assert_same(names["accelerator"].unwrap_model(names["network"]), names["handle"].objective)


def test_accumulation_by_accelerate():
    accelerate = pytest.importorskip("accelerate")
    names = run("def attach")
    x, y = names["examples"].tensors

    def train(micro):
        accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=micro)
        network = make_network(names)
        network, optimizer = accelerator.prepare(network, sgd(network))
        posterior = deelbo.IsotropicPosterior(network, seed=0, init_scale=1e-6)
        deelbo.DataEmphasizedELBO(posterior, deelbo.priors.l2_sp(network), 24).attach(optimizer)
        for _ in range(2):
            for part in range(micro):
                with accelerator.accumulate(network):
                    accelerator.backward(F.cross_entropy(network(x[part::micro]), y[part::micro]))
                    optimizer.step()
                    optimizer.zero_grad()

    assert_same_gradients(train)


def test_a_skipped_step_in_accelerate():
    """With accelerate's own way of skipping, and a GradScaler for the CPU."""
    accelerate = pytest.importorskip("accelerate")
    names = run("def attach")
    x, y = names["examples"].tensors
    accelerator = accelerate.Accelerator(cpu=True)
    accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    network = make_network(names)
    network, optimizer = accelerator.prepare(network, sgd(network))
    handle = names["attach"](network, optimizer, 24)
    explicit = Explicit(make_network(names), sgd, 24)
    for step in range(4):
        loss = F.cross_entropy(network(x), y)
        accelerator.backward(loss * float("inf") if step == 1 else loss)
        optimizer.step()
        assert optimizer.step_was_skipped == (step == 1)
        optimizer.zero_grad()
        if step == 1:
            explicit.objective.posterior.next_key()  # a draw that came to nothing
        else:
            explicit.step((x, y))
        explicit.assert_same(network, handle.objective)


def test_saving_and_loading_by_accelerate(tmp_path):
    accelerate = pytest.importorskip("accelerate")
    names = run("def attach")
    x, y = names["examples"].tensors

    def make():
        accelerator = accelerate.Accelerator(cpu=True)
        network = make_network(names)
        network, optimizer = accelerator.prepare(network, sgd(network))
        return accelerator, network, optimizer, names["attach"](network, optimizer, 24)

    def train(network, optimizer, steps):
        for _ in range(steps):
            optimizer.zero_grad()
            F.cross_entropy(network(x), y).backward()
            optimizer.step()

    accelerator, whole, optimizer, learned = make()
    train(whole, optimizer, 3)
    accelerator.save_state(tmp_path)
    train(whole, optimizer, 3)
    accelerator, again, optimizer, resumed = make()
    accelerator.load_state(tmp_path)
    train(again, optimizer, 3)
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), again.parameters(), strict=True))
    assert torch.equal(learned.posterior.scale, resumed.posterior.scale)
    assert learned.objective.prior.variances == resumed.objective.prior.variances


def test_skorch():
    pytest.importorskip("skorch")
    names = run("def attach", "import skorch")
    explicit = Explicit(make_network(names), sgd, 24)
    for _ in range(4):
        explicit.step(names["examples"].tensors)
    net = names["classifier"]
    explicit.assert_same(net.module_, names["handle"].objective)
    assert net.history[:, "train_loss"] == pytest.approx(explicit.losses, rel=1e-5)
    assert names["handle"].posterior.attachment is None
    net.partial_fit(*(tensor.numpy() for tensor in names["examples"].tensors))  # attaches again


def test_timm():
    """Layer-wise decay, a scheduler and an average of the means."""
    timm = pytest.importorskip("timm")
    names = run("def attach", "import timm")
    assert len({group["lr_scale"] for group in names["optimizer"].param_groups}) > 2
    torch.manual_seed(0)
    network = timm.create_model("test_vit", num_classes=2, img_size=32)
    options = {"lr": 1e-3, "weight_decay": 0.0, "layer_decay": 0.75}
    explicit = Explicit(network, lambda network: timm.optim.create_optimizer_v2(network, "adamw", **options), 8)
    scheduler, _ = timm.scheduler.create_scheduler_v2(explicit.optimizer, num_epochs=4)
    average = {name: weight.clone() for name, weight in network.state_dict().items()}
    for epoch in range(4):
        scheduler.step(epoch)
        explicit.step((names["images"], names["labels"]))
        for name, weight in network.state_dict().items():
            average[name].lerp_(weight, 0.1)
    explicit.assert_same(names["network"], names["handle"].objective)
    for name, weight in names["average"].module.state_dict().items():
        torch.testing.assert_close(weight, average[name], rtol=1e-5, atol=1e-6)
    names["average"].module.train()(names["images"])  # has no hooks, so nothing is drawn
    assert not names["handle"].posterior.sampling


@pytest.mark.filterwarnings("ignore")
def test_fastai():
    pytest.importorskip("fastai.learner")
    names = run("def attach", "import OptimWrapper")
    explicit = Explicit(make_network(names), sgd, 24)
    x, y = names["examples"].tensors
    expected = []
    for _ in range(4):
        explicit.step((x, y))
        with torch.no_grad():
            expected.append(float(F.cross_entropy(explicit.network(x), y)))
    explicit.assert_same(names["learner"].model, names["learner"].deelbo.handle.objective)
    validation = [float(values[-1]) for values in names["learner"].recorder.values]  # at the means, after each step
    assert validation == pytest.approx(expected, rel=1e-5)
    own = names["Learner"](names["DataLoaders"](names["loader"], names["loader"]), names["Network"](), F.cross_entropy)
    own.create_opt()  # fastai's own Adam
    with pytest.raises(ValueError, match=r"Optimizer of fastai.optimizer is no torch.optim.Optimizer.*OptimWrapper"):
        names["attach"](own.model, own.opt, 24)
