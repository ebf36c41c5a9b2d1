"""Whatever happens in the Trainer, its network and every checkpoint have the means: those of the written loop."""

import pytest
import safetensors.torch
import torch
import transformers

from deelbo.integrations import huggingface
from shared.trainers import Texts, Written, assert_same_state, bert, classifier

pytestmark = pytest.mark.slow
EVERY_STEP = {"save_strategy": "steps", "save_steps": 1, "eval_strategy": "steps", "eval_steps": 1}


def saved(folder):
    return safetensors.torch.load_file(folder / "model.safetensors")


def assert_checkpoints(folder, written, steps):
    """Compare each checkpoint with the weights after as many steps of the written loop."""
    assert sorted(path.name for path in folder.glob("checkpoint-*")) == [f"checkpoint-{step}" for step in steps]
    for step in steps:
        assert_same_state(saved(folder / f"checkpoint-{step}"), written.states[step])


def test_evaluation_in_the_middle(tmp_path):
    trainer = classifier(tmp_path, **EVERY_STEP)
    huggingface.attach(trainer)
    trainer.train()
    written = Written(trainer, bert())
    assert_checkpoints(tmp_path, written, range(1, 7))
    model, texts = bert().eval(), Texts()
    expected = []
    for state in written.states[1:]:
        model.load_state_dict(state)
        with torch.no_grad():
            expected.append(float(model(input_ids=texts.ids, labels=texts.labels).loss))
    found = [row["eval_loss"] for row in trainer.state.log_history if "eval_loss" in row]
    assert found == pytest.approx(expected, rel=1e-5)


def test_early_stopping(tmp_path):
    stop = transformers.EarlyStoppingCallback(early_stopping_patience=2, early_stopping_threshold=10)
    changed = {"load_best_model_at_end": True, "metric_for_best_model": "eval_loss"}
    trainer = classifier(tmp_path, callbacks=[stop], **EVERY_STEP, **changed)
    huggingface.attach(trainer)
    trainer.train()
    assert trainer.state.global_step == 3  # of six
    written = Written(trainer, bert())
    assert_checkpoints(tmp_path, written, range(1, 4))
    best = int(trainer.state.best_model_checkpoint.rsplit("-", 1)[1])
    assert_same_state(trainer.model.state_dict(), written.states[best])


def test_the_best_model_at_the_end(tmp_path):
    changed = {"load_best_model_at_end": True, "metric_for_best_model": "eval_loss", "greater_is_better": True}
    trainer = classifier(tmp_path, **EVERY_STEP, **changed)  # the worst, so that it is not the last
    huggingface.attach(trainer)
    trainer.train()
    written = Written(trainer, bert())
    best = int(trainer.state.best_model_checkpoint.rsplit("-", 1)[1])
    assert best < 6
    assert_same_state(trainer.model.state_dict(), written.states[best])


class Saver(transformers.TrainerCallback):
    """Saves the network at every event of a step."""

    def __init__(self, folder):
        self.folder = folder

    def save(self, event, state, model):
        model.save_pretrained(self.folder / f"{event}-{state.global_step}")

    def on_step_begin(self, args, state, control, model=None, **kwargs):
        self.save("step_begin", state, model)

    def on_substep_end(self, args, state, control, model=None, **kwargs):
        self.save("substep_end", state, model)

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        self.save("pre_optimizer_step", state, model)

    def on_optimizer_step(self, args, state, control, model=None, **kwargs):
        self.save("optimizer_step", state, model)

    def on_step_end(self, args, state, control, model=None, **kwargs):
        self.save("step_end", state, model)


class SavesInLoss(transformers.Trainer):
    """Saves the network between the forward and the backward pass, too."""

    def compute_loss(self, model, *args, **kwargs):
        loss = super().compute_loss(model, *args, **kwargs)
        if model.training:
            model.save_pretrained(f"{self.args.output_dir}/loss-{self.state.global_step}")
        return loss


def test_save_pretrained_at_any_moment(tmp_path):
    trainer = classifier(tmp_path, kind=SavesInLoss, callbacks=[Saver(tmp_path)], gradient_accumulation_steps=3)
    huggingface.attach(trainer)
    trainer.train()
    written = Written(trainer, bert(), micro=3)
    for step in range(2):
        for event in ("step_begin", "loss", "substep_end", "pre_optimizer_step"):
            assert_same_state(saved(tmp_path / f"{event}-{step}"), written.states[step])
        assert_same_state(saved(tmp_path / f"optimizer_step-{step}"), written.states[step + 1])
        assert_same_state(saved(tmp_path / f"step_end-{step + 1}"), written.states[step + 1])
    assert_same_state(trainer.model.state_dict(), written.states[-1])  # saving has changed nothing


class Fails(transformers.Trainer):
    """Raises an error between the forward and the backward pass of the third step."""

    def compute_loss(self, *args, **kwargs):
        loss = super().compute_loss(*args, **kwargs)
        if self.state.global_step == 2:
            raise RuntimeError("in the loss")
        return loss


def test_an_exception_in_a_step(tmp_path):
    trainer = classifier(tmp_path, kind=Fails)
    huggingface.attach(trainer)
    with pytest.raises(RuntimeError, match="in the loss"):
        trainer.train()
    trainer.save_model(tmp_path / "after")
    written = Written(trainer, bert())
    assert_same_state(saved(tmp_path / "after"), written.states[2])
    assert_same_state(trainer.model.state_dict(), written.states[2])


class Overflows(transformers.Trainer):
    """Has infinite gradients in the third step."""

    def compute_loss(self, *args, **kwargs):
        loss = super().compute_loss(*args, **kwargs)
        return loss * float("inf") if self.model.training and self.state.global_step == 2 else loss


@pytest.mark.parametrize("optim", ["sgd", "adamw_torch_fused"])
def test_a_skipped_step_of_half_precision(tmp_path, optim):
    """With the GradScaler that accelerate has for float16, which the Trainer itself does not give a CPU."""
    trainer = classifier(tmp_path, kind=Overflows, optim=optim, **EVERY_STEP)
    trainer.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    handle = huggingface.attach(trainer)
    trainer.train()
    states = [saved(tmp_path / f"checkpoint-{step}") for step in range(1, 7)]
    assert_same_state(states[2], states[1], rtol=0)  # skipped
    assert all(bool(weight.isfinite().all()) for weight in states[-1].values())
    assert any(not torch.equal(weight, states[2][name]) for name, weight in states[3].items())
    assert trainer.accelerator.scaler.get_scale() == 512.0
    if optim == "sgd":
        written = Written(trainer, bert(), skipped=[2])
        assert_checkpoints(tmp_path, written, range(1, 7))
        assert handle.objective.prior.variances == pytest.approx(written.objective.prior.variances, rel=1e-4)
