"""Whatever happens in Lightning, its module and every checkpoint have the means: those of the written loop."""

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.plugins import MixedPrecision

from shared.lightnings import Module, Written, assert_same_state, callback, loader, trainer

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def saved(path):
    """Return the weights of the network in a checkpoint."""
    state = torch.load(path, weights_only=True)["state_dict"]
    return {name.removeprefix("net."): weight for name, weight in state.items()}


def test_validation_in_the_middle():
    module, written = Module(), Written()
    trainer(callback(), val_check_interval=1).fit(module, loader(), loader())
    assert len(module.seen) == 6
    for seen, state in zip(module.seen, written.states[1:], strict=True):
        assert_same_state(seen, state)


def test_validation_between_micro_batches():
    module, written = Module(), Written(micro=4)
    trainer(callback(), val_check_interval=1, accumulate_grad_batches=4).fit(module, loader(2), loader())
    assert len(module.seen) == 24
    for number, seen in enumerate(module.seen):
        assert_same_state(seen, written.states[(number + 1) // 4])


def test_an_exception_in_a_step():
    module = Module(fails=2)
    fit = trainer(callback())
    with pytest.raises(RuntimeError, match="in the step"):
        fit.fit(module, loader())
    assert_same_state({name: p.detach() for name, p in module.net.named_parameters()}, Written().states[2])
    assert fit.gradient_clip_val == 0.5


def test_early_stopping(tmp_path):
    stop = EarlyStopping("val_loss", min_delta=10.0, patience=1, check_on_train_epoch_end=False)
    save = ModelCheckpoint(tmp_path, filename="{step}", every_n_train_steps=1, save_top_k=-1)
    module, written = Module(), Written()
    fit = trainer(callback(), stop, save, enable_checkpointing=True, val_check_interval=1)
    fit.fit(module, loader(), loader())
    assert fit.global_step == 2  # of six
    assert_same_state(module.net.state_dict(), written.states[2])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step=1.ckpt", "step=2.ckpt"]
    for step in (1, 2):
        assert_same_state(saved(tmp_path / f"step={step}.ckpt"), written.states[step])


class Saver(lightning.Callback):
    """Saves a checkpoint at the events of a step."""

    def __init__(self, folder):
        self.folder = folder

    def save(self, event, trainer):
        trainer.save_checkpoint(self.folder / f"{event}-{trainer.global_step}.ckpt")

    def on_train_batch_start(self, trainer, *args):
        self.save("batch_start", trainer)

    def on_before_backward(self, trainer, *args):
        self.save("before_backward", trainer)

    def on_after_backward(self, trainer, *args):
        self.save("after_backward", trainer)

    def on_before_optimizer_step(self, trainer, *args):
        self.save("before_step", trainer)

    def on_train_batch_end(self, trainer, *args):
        self.save("batch_end", trainer)


def test_a_checkpoint_at_any_moment(tmp_path):
    module, written = Module(), Written()
    trainer(callback(), Saver(tmp_path)).fit(module, loader())
    for step in range(6):
        for event in ("batch_start", "before_backward", "after_backward", "before_step"):
            assert_same_state(saved(tmp_path / f"{event}-{step}.ckpt"), written.states[step])
        assert_same_state(saved(tmp_path / f"batch_end-{step + 1}.ckpt"), written.states[step + 1])
    assert_same_state(module.net.state_dict(), written.states[-1])  # saving has changed nothing


def test_a_skipped_step_of_half_precision():
    """Real float16 on the CPU, with Lightning's plugin and a GradScaler."""
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    plugin = MixedPrecision("16-mixed", "cpu", scaler)
    own, module = callback(), Module(overflows=2)
    trainer(own, plugins=[plugin], val_check_interval=1).fit(module, loader(), loader())
    written = Written(skipped=[2], autocast=lambda: torch.autocast("cpu", dtype=torch.float16))
    assert_same_state(module.seen[2], module.seen[1], rtol=0)  # skipped
    for seen, state in zip(module.seen, written.states[1:], strict=True):
        assert_same_state(seen, state, rtol=2e-3)
    assert scaler.get_scale() == 128.0
    assert own.objective.prior.variances == pytest.approx(written.objective.prior.variances, rel=0.02)
