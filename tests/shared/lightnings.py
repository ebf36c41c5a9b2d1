"""A tiny module for Lightning, and the loop that Lightning runs, written out."""

import copy
import os
import signal
import subprocess
import sys
from contextlib import nullcontext

import lightning
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

import deelbo
from deelbo.integrations.lightning import DeelboCallback
from shared.processes import environment


def data():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(24, 4, generator=generator)
    return TensorDataset(x, (x[:, 0] > 0).long())


def loader(batch_size=8):
    return DataLoader(data(), batch_size=batch_size)


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))


class Module(lightning.LightningModule):
    """A network with its loss.

    Args:
        fails: Step in which an exception is raised between the forward and the backward pass.
        overflows: Step whose gradients are infinite.

    Attributes:
        seen: The network's weights in each validation.
        losses: The loss of each batch.
    """

    def __init__(self, fails=None, overflows=None):
        super().__init__()
        self.net, self.fails, self.overflows, self.seen, self.losses = network(), fails, overflows, [], []

    def training_step(self, batch, index):
        loss = F.cross_entropy(self.net(batch[0]), batch[1])
        self.losses.append(loss.item())
        if self.global_step == self.fails:
            raise RuntimeError("in the step")
        return loss * float("inf") if len(self.losses) - 1 == self.overflows else loss

    def validation_step(self, batch, index):
        if index == 0:
            self.seen.append({name: p.detach().clone() for name, p in self.net.named_parameters()})
        self.log("val_loss", F.cross_entropy(self.net(batch[0]), batch[1]))

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)}


def callback(**changed):
    return DeelboCallback(**{"network": "net", "head": "2", "seed": 3, **changed})


def trainer(*callbacks, **changed):
    usual = {
        "max_epochs": 2,
        "accelerator": "cpu",
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "num_sanity_val_steps": 0,
        "gradient_clip_val": 0.5,
    }
    return lightning.Trainer(callbacks=list(callbacks), **{**usual, **changed})


class Written:
    """The same training by a loop that is written out.

    Args:
        micro: Number of micro-batches in a step.
        skipped: Steps whose gradients are thrown away.
        autocast: Context of each forward pass.

    Attributes:
        states: The network's weights before the first step and after each.
        losses: The loss of each batch.
    """

    def __init__(self, micro=1, skipped=(), autocast=nullcontext):
        self.net = network()
        posterior = deelbo.IsotropicPosterior(self.net, seed=3)
        self.objective = deelbo.DataEmphasizedELBO(posterior, deelbo.priors.l2_sp(self.net, head="2"), 24)
        optimizer = torch.optim.SGD(posterior.parameters(), lr=0.1, momentum=0.9)
        self.states, self.losses = [copy.deepcopy(self.net.state_dict())], []
        for epoch in range(2):
            optimizer.param_groups[0]["lr"] = 0.1 * 0.9**epoch
            batches = list(loader(8 // micro))
            for start in range(0, len(batches), micro):
                optimizer.zero_grad()
                for x, y in batches[start : start + micro]:
                    with posterior.sample():
                        with autocast():
                            loss = F.cross_entropy(self.net(x), y)
                        (loss / micro).backward()
                    self.losses.append(loss.item())
                if len(self.states) - 1 not in skipped:
                    self.objective.backward()
                    torch.nn.utils.clip_grad_norm_(posterior.parameters(), 0.5)
                    optimizer.step()
                self.states.append(copy.deepcopy(self.net.state_dict()))


def assert_same_state(state, other, rtol=1e-6):
    assert state.keys() == other.keys()
    for name, weight in state.items():
        torch.testing.assert_close(weight, other[name], rtol=rtol, atol=rtol)


# ---- to be killed ----


class Kill(lightning.Callback):
    """Kills its process after a step."""

    def __init__(self, step):
        self.step = step

    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        if trainer.global_step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def train_and_save(out, kill_at=None, resume=None):
    """Train for two epochs of three steps, with a checkpoint at the end of each."""
    own, module = callback(), Module()
    save = lightning.pytorch.callbacks.ModelCheckpoint(out, every_n_train_steps=3, save_last=True)
    fit = trainer(own, save, Kill(kill_at), enable_checkpointing=True)
    fit.fit(module, loader(), ckpt_path=resume)
    return module, own


def kill_while_training(out, kill_at):
    """Do the same in a process of its own, which is killed; return its exit code."""
    code = f"import shared.lightnings as t; t.train_and_save({str(out)!r}, {kill_at})"
    return subprocess.run([sys.executable, "-c", code], env=environment(), check=False).returncode
