"""TRL's SFTTrainer with one line more, beside an explicit loop."""

import pytest
import torch

from deelbo.integrations import huggingface
from shared.attached import assert_same_gradients
from shared.trainers import (
    Written,
    assert_same_state,
    assert_same_training,
    kill_while_training,
    language_model,
    sft,
    train_and_save,
)

pytest.importorskip("trl")
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("micro", [1, 3])
def test_the_same_training_as_an_explicit_loop(tmp_path, micro):
    trainer = sft(tmp_path, gradient_accumulation_steps=micro)
    handle = huggingface.attach(trainer)
    assert handle.objective.num_data == 30
    trainer.train()
    assert trainer.model_accepts_loss_kwargs
    assert_same_training(trainer, handle, Written(trainer, language_model(), micro))


def test_accumulation_changes_neither_gradient_nor_kl(tmp_path):
    def train(micro):
        sizes = {"per_device_train_batch_size": 12 // micro, "gradient_accumulation_steps": micro}
        trainer = sft(tmp_path, **sizes)
        huggingface.attach(trainer, init_scale=1e-6)
        trainer.train()

    assert_same_gradients(train)


def test_killed_and_resumed_is_uninterrupted(tmp_path):
    whole, learned = train_and_save("sft", tmp_path / "whole")
    assert kill_while_training("sft", tmp_path / "killed", kill_at=3) == -9
    assert [path.name for path in (tmp_path / "killed").glob("checkpoint-*")] == ["checkpoint-2"]
    again, resumed = train_and_save("sft", tmp_path / "killed", resume=True)
    assert_same_state(whole.model.state_dict(), again.model.state_dict(), rtol=0)
    assert_same_state(learned.objective.state_dict(), resumed.objective.state_dict(), rtol=0)


def test_adapters_that_the_trainer_makes(tmp_path):
    """`SFTTrainer(peft_config=...)`; its default of bfloat16 autocast and activation checkpointing."""
    peft, trl = pytest.importorskip("peft"), pytest.importorskip("trl")
    plain = sft(tmp_path, bf16=True, gradient_checkpointing=True)
    lora = peft.LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=["q_proj", "v_proj"])
    data = {"train_dataset": plain.train_dataset, "processing_class": plain.processing_class}
    trainer = trl.SFTTrainer(model=language_model(), args=plain.args, peft_config=lora, **data)
    handle = huggingface.attach(trainer)
    assert sorted(handle.objective.prior.variances) == ["lora_A", "lora_B"]
    trainer.train()
    last = [row for row in trainer.state.log_history if "loss" in row][-1]
    assert 0 < last["deelbo/variance_lora_B"] < 1
    trainer.save_model(tmp_path / "adapter")
    saved = peft.PeftModel.from_pretrained(language_model(), tmp_path / "adapter")
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_B.default.weight"
    mean = handle.objective.posterior.means[name]
    assert torch.equal(saved.state_dict()[name], mean)
    assert float(mean.detach().abs().max()) > 0
