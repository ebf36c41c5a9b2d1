"""Lightning with the callback, beside an explicit loop."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

import deelbo

lightning = pytest.importorskip("lightning")
from deelbo.integrations.lightning import DeelboCallback  # noqa: E402 - after the library is known to be there

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def data():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(24, 4, generator=generator)
    return TensorDataset(x, (x[:, 0] > 0).long())


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))


class Module(lightning.LightningModule):
    def __init__(self, fails=False):
        super().__init__()
        self.net, self.fails, self.seen = network(), fails, []

    def training_step(self, batch, index):
        loss = F.cross_entropy(self.net(batch[0]), batch[1])
        if self.fails and self.global_step == 2:
            raise RuntimeError("in the step")
        return loss

    def validation_step(self, batch, index):
        self.seen.append([p.clone() for p in self.net.parameters()])

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)}


def trainer(callback, out, **changed):
    usual = {
        "max_epochs": 2,
        "accelerator": "cpu",
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "gradient_clip_val": 0.5,
        "default_root_dir": out,
    }
    return lightning.Trainer(callbacks=[callback], **{**usual, **changed})


def callback():
    return DeelboCallback(network="net", head="2", seed=3)


def explicit(micro=1, epochs=2):
    net = network()
    posterior = deelbo.IsotropicPosterior(net, seed=3)
    objective = deelbo.DataEmphasizedELBO(posterior, deelbo.priors.l2_sp(net, head="2"), 24)
    optimizer = torch.optim.SGD(posterior.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(epochs):
        for group in optimizer.param_groups:
            group["lr"] = 0.1 * 0.9**epoch
        batches = list(DataLoader(data(), batch_size=8 // micro))
        for start in range(0, len(batches), micro):
            optimizer.zero_grad()
            for x, y in batches[start : start + micro]:
                with posterior.sample():
                    (F.cross_entropy(net(x), y) / micro).backward()
            objective.backward()
            torch.nn.utils.clip_grad_norm_(posterior.parameters(), 0.5)
            optimizer.step()
    return net, objective


@pytest.mark.parametrize("micro", [1, 2, 4])
def test_the_same_weights_as_an_explicit_loop(tmp_path, micro):
    own, module = callback(), Module()
    fit = trainer(own, tmp_path, accumulate_grad_batches=micro)
    fit.fit(module, DataLoader(data(), batch_size=8 // micro))
    net, objective = explicit(micro)
    for one, two in zip(module.net.parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-7)
    assert own.objective.prior.variances == pytest.approx(objective.prior.variances, rel=1e-5)
    assert own.objective.posterior.scale.item() == pytest.approx(objective.posterior.scale.item(), rel=1e-5)
    assert fit.gradient_clip_val == 0.5
    assert own.objective.posterior.attachment is None


def test_validation_sees_the_means(tmp_path):
    module = Module()
    loader = DataLoader(data(), batch_size=8)
    trainer(callback(), tmp_path, val_check_interval=1, max_epochs=1, num_sanity_val_steps=0).fit(
        module, loader, loader
    )
    net, _ = explicit(epochs=1)
    for one, two in zip(module.seen[-1], net.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-7)


def test_an_exception_leaves_the_means(tmp_path):
    module = Module(fails=True)
    with pytest.raises(RuntimeError, match="in the step"):
        trainer(callback(), tmp_path).fit(module, DataLoader(data(), batch_size=8))
    net = network()
    posterior = deelbo.IsotropicPosterior(net, seed=3)
    objective = deelbo.DataEmphasizedELBO(posterior, deelbo.priors.l2_sp(net, head="2"), 24)
    optimizer = torch.optim.SGD(posterior.parameters(), lr=0.1, momentum=0.9)
    for x, y in list(DataLoader(data(), batch_size=8))[:2]:  # the steps before it
        optimizer.zero_grad()
        with posterior.sample():
            F.cross_entropy(net(x), y).backward()
        objective.backward()
        torch.nn.utils.clip_grad_norm_(posterior.parameters(), 0.5)
        optimizer.step()
    for one, two in zip(module.net.parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-7)


def test_bfloat16(tmp_path):
    own, module = callback(), Module()
    trainer(own, tmp_path, precision="bf16-mixed").fit(module, DataLoader(data(), batch_size=8))
    assert own.objective.posterior.scale.item() != 1e-4


def test_what_cannot_be_served(tmp_path):
    module = Module()
    module.automatic_optimization = False
    with pytest.raises(ValueError, match="automatic optimisation"):
        trainer(callback(), tmp_path, gradient_clip_val=None).fit(module, DataLoader(data(), batch_size=8))
    with pytest.raises(ValueError, match="by norm only"):
        trainer(callback(), tmp_path, gradient_clip_algorithm="value").fit(Module(), DataLoader(data(), batch_size=8))
    with pytest.raises(RuntimeError, match="call the network itself"):  # which the module's training_step does not
        trainer(DeelboCallback(head="net.2"), tmp_path).fit(Module(), DataLoader(data(), batch_size=8))


KILLED = """
import os, signal, sys
sys.path[:0] = {path!r}
import torch, lightning
from lightning_case import *

class Kill(lightning.Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        if trainer.global_step == {at}:
            os.kill(os.getpid(), signal.SIGKILL)

save = lightning.pytorch.callbacks.ModelCheckpoint({out!r}, every_n_train_steps=3, save_last=True)
module, own = Module(), callback()
fit = lightning.Trainer(callbacks=[own, save, Kill()], max_epochs=2, accelerator="cpu", logger=False,
                        enable_progress_bar=False, enable_model_summary=False, gradient_clip_val=0.5)
fit.fit(module, DataLoader(data(), batch_size=8), ckpt_path={resume})
torch.save([p.detach() for p in module.net.parameters()], {out!r} + "/final.pt")
"""


def test_killed_and_resumed_is_uninterrupted(tmp_path):
    (tmp_path / "lightning_case.py").write_text(Path(__file__).read_text())

    def run(out, at, resume=None):
        code = KILLED.format(path=[str(tmp_path)], at=at, out=str(tmp_path / out), resume=resume)
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    whole = run("whole", -1)
    assert whole.returncode == 0, whole.stderr[-2000:]
    assert run("killed", 4).returncode == -9
    again = run("killed", -1, repr(str(tmp_path / "killed" / "last.ckpt")))
    assert again.returncode == 0, again.stderr[-2000:]
    one, two = (torch.load(tmp_path / name / "final.pt") for name in ("whole", "killed"))
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
