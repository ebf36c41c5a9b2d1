"""Lightning with the callback, beside an explicit loop."""

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from deelbo.integrations.lightning import DeelboCallback
from shared.attached import assert_same_gradients
from shared.lightnings import (
    Module,
    Written,
    assert_same_state,
    callback,
    data,
    kill_while_training,
    loader,
    train_and_save,
    trainer,
)

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("micro", [1, 4])
def test_the_same_training_as_an_explicit_loop(micro):
    own, module, written = callback(), Module(), Written(micro)
    fit = trainer(own, accumulate_grad_batches=micro)
    fit.fit(module, loader(8 // micro))
    assert_same_state(module.net.state_dict(), written.states[-1])
    assert module.losses == pytest.approx(written.losses, rel=1e-5)
    assert own.objective.prior.variances == pytest.approx(written.objective.prior.variances, rel=1e-5)
    assert own.objective.posterior.scale.item() == pytest.approx(written.objective.posterior.scale.item(), rel=1e-5)
    assert fit.gradient_clip_val == 0.5
    assert own.objective.posterior.attachment is None


def test_accumulation_changes_neither_gradient_nor_kl():
    def train(micro):
        own = callback(init_scale=1e-6)
        trainer(own, accumulate_grad_batches=micro, gradient_clip_val=None).fit(Module(), loader(24 // micro))

    assert_same_gradients(train)


def test_bfloat16():
    own, module = callback(), Module()
    trainer(own, precision="bf16-mixed").fit(module, loader())
    written = Written(autocast=lambda: torch.autocast("cpu", dtype=torch.bfloat16))
    assert_same_state(module.net.state_dict(), written.states[-1], rtol=1e-5)


def test_killed_and_resumed_is_uninterrupted(tmp_path):
    """A process is killed after four steps of six; another goes on from its checkpoint after the third."""
    whole, learned = train_and_save(tmp_path / "whole")
    assert kill_while_training(tmp_path / "killed", kill_at=4) == -9
    again, resumed = train_and_save(tmp_path / "killed", resume=tmp_path / "killed" / "last.ckpt")
    assert len(again.losses) == 3
    assert_same_state(whole.net.state_dict(), again.net.state_dict(), rtol=0)
    assert_same_state(learned.objective.state_dict(), resumed.objective.state_dict(), rtol=0)


def test_the_callback_again():
    """The same module goes on from what was learned; another module begins anew."""
    own, module = callback(), Module()
    trainer(own).fit(module, loader())
    first, draws = own.objective, own.objective.posterior.draws
    trainer(own).fit(module, loader())
    assert own.objective is first
    assert first.posterior.draws == 2 * draws
    other = Module()
    trainer(own).fit(other, loader())
    assert own.objective.posterior.model is other.net
    assert_same_state(other.net.state_dict(), Written().states[-1])


class TwoOptimizers(Module):
    def configure_optimizers(self):
        return [torch.optim.SGD(layer.parameters(), lr=0.1) for layer in (self.net[0], self.net[2])]


class Quasi(Module):
    def configure_optimizers(self):
        return torch.optim.LBFGS(self.parameters())


class Manual(Module):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False


def test_networks_in_eval_mode():
    """Lightning leaves a network in the mode that it has, and `from_pretrained` gives it in eval mode."""
    module = Module()
    module.net.eval()
    with pytest.raises(ValueError, match=r'"net" is in eval mode.*call its train\(\)'):
        trainer(callback()).fit(module, loader())


class Stream(IterableDataset):
    def __iter__(self):
        return iter(data())


@pytest.mark.parametrize(
    ("module", "changed", "message"),
    [
        (Manual, {"gradient_clip_val": None}, "automatic optimisation"),
        (Module, {"gradient_clip_algorithm": "value"}, "by norm only"),
        (Module, {"precision": "bf16-true"}, 'precision="bf16-true" keeps the weights in half.*"bf16-mixed"'),
        (Quasi, {}, "LBFGS calls its closure several times"),
    ],
)
def test_settings_that_cannot_be_served(module, changed, message):
    fit = trainer(callback(), **changed)
    with pytest.raises(ValueError, match=message):
        fit.fit(module(), loader())
    assert fit.gradient_clip_val == changed.get("gradient_clip_val", 0.5)


def test_what_a_module_must_have():
    with pytest.raises((ValueError, RuntimeError), match=r"one optimizer|multiple optimizers"):  # ours or Lightning's
        trainer(callback()).fit(TwoOptimizers(), loader())
    with pytest.raises(RuntimeError, match="call the network itself"):  # which the module's training_step does not
        trainer(DeelboCallback(head="net.2")).fit(Module(), loader())
    with pytest.raises(ValueError, match='network="model" is no part of Module, which has "net"'):
        trainer(callback(network="model")).fit(Module(), loader())
    with pytest.raises(ValueError, match="no length: give num_data"):
        trainer(callback()).fit(Module(), DataLoader(Stream(), batch_size=8))
    trainer(callback(num_data=24)).fit(module := Module(), DataLoader(Stream(), batch_size=8))
    assert_same_state(module.net.state_dict(), Written().states[-1])
