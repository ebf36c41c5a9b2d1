"""The Trainer of Hugging Face with one line more, beside an explicit loop."""

import pytest
import torch
import transformers

import deelbo
from deelbo.integrations import huggingface
from shared.attached import assert_same_gradients
from shared.trainers import (
    Texts,
    Written,
    arguments,
    assert_same_state,
    assert_same_training,
    bert,
    classifier,
    kill_while_training,
    language_model,
    train_and_save,
)

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("micro", [1, 3])
def test_the_same_training_as_an_explicit_loop(tmp_path, micro):
    trainer = classifier(tmp_path, gradient_accumulation_steps=micro)
    handle = huggingface.attach(trainer)
    trainer.train()
    assert_same_training(trainer, handle, Written(trainer, bert(), micro))


def test_images(tmp_path):
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.ViTConfig(image_size=8, patch_size=4, num_labels=3, **sizes)
    images = [{"pixel_values": torch.randn(3, 8, 8), "labels": i % 3} for i in range(12)]
    model = transformers.ViTForImageClassification(config)
    trainer = transformers.Trainer(model, arguments(tmp_path), train_dataset=images)
    handle = huggingface.attach(trainer)
    assert handle.objective.num_data == 12
    before = handle.objective.prior.variances
    trainer.train()
    assert sorted(handle.objective.prior.variances) == ["backbone", "head"]
    assert handle.objective.prior.variances["head"] != before["head"]


def test_accumulation_changes_neither_gradient_nor_kl(tmp_path):
    def train(micro):
        sizes = {"per_device_train_batch_size": 12 // micro, "gradient_accumulation_steps": micro}
        trainer = classifier(tmp_path, **sizes)
        huggingface.attach(trainer, init_scale=1e-6)
        trainer.train()

    assert_same_gradients(train)


def test_adapters_of_a_language_model(tmp_path):
    peft = pytest.importorskip("peft")
    lora = peft.LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=["q_proj"])
    model = peft.get_peft_model(language_model(), lora)
    trainer = transformers.Trainer(model, arguments(tmp_path), train_dataset=Texts(tokens=True))
    handle = huggingface.attach(trainer)
    assert sorted(handle.objective.prior.variances) == ["lora_A", "lora_B"]
    assert handle.objective.num_data == 30
    trainer.train()
    assert all(0 < value < 1 for value in handle.objective.prior.variances.values())


def test_adapters_of_half_precision_become_float32(tmp_path):
    """As QLoRA and TRL make them; the network below stays in bfloat16."""
    peft = pytest.importorskip("peft")
    lora = peft.LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=["q_proj"])
    model = peft.get_peft_model(language_model().bfloat16(), lora, autocast_adapter_dtype=False)
    trainer = transformers.Trainer(model, arguments(tmp_path, bf16=True), train_dataset=Texts(tokens=True))
    with pytest.warns(UserWarning, match=r"2 adapters, such as .*lora_A.* are float32 from now on"):
        handle = huggingface.attach(trainer)
    kinds = {p.requires_grad: p.dtype for p in model.parameters()}
    assert kinds == {True: torch.float32, False: torch.bfloat16}
    trainer.train()
    assert all(0 < value < 1 for value in handle.objective.prior.variances.values())


def test_a_network_in_bfloat16_is_trained_and_resumed(tmp_path):
    def trained(folder, **options):
        model = language_model().bfloat16()
        args = arguments(tmp_path / folder, save_strategy="steps", save_steps=3, **options)
        trainer = transformers.Trainer(model, args, train_dataset=Texts(tokens=True))
        return trainer, huggingface.attach(trainer).objective.posterior.masters

    trainer, whole = trained("one")
    before = [mean.detach().clone() for mean in whole.means]
    trainer.train()
    assert {p.dtype for p in trainer.model.parameters()} == {torch.bfloat16}
    assert not any(torch.equal(mean, start) for mean, start in zip(whole.means, before, strict=True))
    assert all(torch.equal(w, m.bfloat16()) for w, m in zip(whole.weights, whole.means, strict=True))
    other, resumed = trained("two")
    other.train(resume_from_checkpoint=str(tmp_path / "one" / "checkpoint-3"))
    assert all(torch.equal(m, r) for m, r in zip(whole.means, resumed.means, strict=True))
    with pytest.raises(ValueError, match=r"is float16, in which small gradients become zero: use model.bfloat16\(\)"):
        huggingface.attach(
            transformers.Trainer(language_model().half(), arguments(tmp_path), train_dataset=Texts(tokens=True))
        )


def test_logs_have_what_is_learned_and_clipping_and_decay_are_ours(tmp_path):
    trainer = classifier(tmp_path, weight_decay=0.1)
    with pytest.warns(UserWarning, match="set to 0"):
        huggingface.attach(trainer)
    assert (trainer.args.weight_decay, trainer.args.max_grad_norm) == (0, 0)
    trainer.train()
    rows = [row for row in trainer.state.log_history if "loss" in row]
    names = {"variance_backbone", "variance_head", "scale", "kappa", "kl", "objective"}
    assert names <= {name.removeprefix("deelbo/") for name in rows[-1]}
    assert rows[-1]["deelbo/objective"] == pytest.approx(-(rows[-1]["loss"] + rows[-1]["deelbo/kl"]))


@pytest.mark.parametrize("accumulation", [1, 3])
def test_after_remove_the_trainer_is_a_plain_one(tmp_path, accumulation):
    changed = {"weight_decay": 0.1, "gradient_accumulation_steps": accumulation, "optim": "adamw_torch"}
    plain = classifier(tmp_path, **changed)
    trainer = classifier(tmp_path, **changed)
    with pytest.warns(UserWarning, match="set to 0"):
        handle = huggingface.attach(trainer)
    trainer.train()
    handle.remove()
    handle.remove()  # which does nothing
    assert handle.objective.posterior.attachment is None
    assert (trainer.args.max_grad_norm, trainer.args.weight_decay) == (0.2, 0.1)
    trainer.model.load_state_dict(plain.model.state_dict())
    trainer.train()
    plain.train()
    assert_same_state(trainer.model.state_dict(), plain.model.state_dict(), rtol=0)
    assert "deelbo/kl" not in trainer.state.log_history[-2]


@pytest.mark.parametrize("checkpointing", [False, True])
def test_autocast_and_activation_checkpointing(tmp_path, checkpointing):
    """Beside the written loop, under autocast too; the memory that checkpointing saves changes nothing."""
    trainer = classifier(tmp_path, bf16=True, gradient_checkpointing=checkpointing)
    handle = huggingface.attach(trainer)
    trainer.train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        written = Written(trainer, bert())
    assert_same_state(trainer.model.state_dict(), written.states[-1], rtol=1e-4)
    assert handle.objective.posterior.scale.item() == pytest.approx(written.objective.posterior.scale.item(), rel=1e-3)


def test_killed_and_resumed_is_uninterrupted(tmp_path):
    """A process is killed after three steps of six; another goes on from its checkpoint after the second."""
    whole, learned = train_and_save("classifier", tmp_path / "whole")
    assert kill_while_training("classifier", tmp_path / "killed", kill_at=3) == -9
    assert [path.name for path in (tmp_path / "killed").glob("checkpoint-*")] == ["checkpoint-2"]
    again, resumed = train_and_save("classifier", tmp_path / "killed", resume=True)
    assert_same_state(whole.model.state_dict(), again.model.state_dict(), rtol=0)
    assert_same_state(learned.objective.state_dict(), resumed.objective.state_dict(), rtol=0)


def test_training_again_goes_on(tmp_path):
    trainer = classifier(tmp_path)
    handle = huggingface.attach(trainer)
    trainer.train()
    first, draws = handle.objective.posterior.scale.item(), handle.objective.posterior.draws
    trainer.train()
    assert handle.objective.posterior.scale.item() != first
    assert handle.objective.posterior.draws == 2 * draws


def test_an_optimizer_of_ones_own(tmp_path):
    model = bert()
    own = torch.optim.SGD(model.parameters(), lr=0.05)
    trainer = transformers.Trainer(model, arguments(tmp_path), train_dataset=Texts(), optimizers=(own, None))
    handle = huggingface.attach(trainer)
    trainer.train()
    assert_same_training(trainer, handle, Written(trainer, bert()))
    handle.remove()
    assert trainer.optimizer is own
    assert len(own.param_groups[0]["params"]) == len(list(model.parameters()))


class Stream(torch.utils.data.IterableDataset):
    """The same texts without a length."""

    def __iter__(self):
        return iter([Texts()[i] for i in range(12)])


def test_a_stream_needs_its_number(tmp_path):
    changed = {"max_steps": 3, "gradient_accumulation_steps": 2, "per_device_train_batch_size": 2}
    trainer = transformers.Trainer(bert(), arguments(tmp_path, **changed), train_dataset=Stream())
    with pytest.raises(ValueError, match="the training set has no length: give num_data"):
        huggingface.attach(trainer)
    handle = huggingface.attach(trainer, num_data=12)
    trainer.train()
    assert handle.objective.posterior.draws == 6


def test_what_cannot_be_served(tmp_path):
    trainer = classifier(tmp_path)
    for optim in ("lomo", "adalomo", "galore_adamw_layerwise", "apollo_adamw_layerwise"):
        trainer.args.optim = optim
        with pytest.raises(ValueError, match=f"optim='{optim}' updates the weights during.*adamw_torch"):
            huggingface.attach(trainer)
    trainer.args.optim = "sgd"
    for attribute, message in (("is_deepspeed_enabled", "DeepSpeed.*DDP"), ("is_fsdp_enabled", r"FSDP.*DDP")):
        setattr(trainer, attribute, True)
        with pytest.raises(ValueError, match=message):
            huggingface.attach(trainer)
        setattr(trainer, attribute, False)
    with pytest.raises(ValueError, match=r"l3-sp.*l2-sp"):
        huggingface.attach(trainer, "l3-sp")
    huggingface.attach(trainer)
    with pytest.raises(ValueError, match=r"attached already: call remove\(\)"):
        huggingface.attach(trainer)
    trainer.args.optim = "lomo"  # a setting that is changed later
    with pytest.raises(ValueError, match="optim='lomo'"):
        trainer.train()


def test_trainers_without_data_or_model(tmp_path):
    with pytest.raises(ValueError, match="train_dataset"):
        huggingface.attach(transformers.Trainer(bert(), arguments(tmp_path)))
    trainer = transformers.Trainer(args=arguments(tmp_path), train_dataset=Texts(), model_init=lambda: bert())
    with pytest.raises(ValueError, match="model_init makes a new model"):
        huggingface.attach(trainer)


def test_captured_graphs_are_refused_when_training_starts(tmp_path):
    model = bert()
    own = torch.optim.Adam(model.parameters(), capturable=True)
    trainer = transformers.Trainer(model, arguments(tmp_path), train_dataset=Texts(), optimizers=(own, None))
    huggingface.attach(trainer)
    with pytest.raises(ValueError, match="capturable=False"):
        trainer.train()
    assert isinstance(deelbo.IsotropicPosterior(model), deelbo.IsotropicPosterior)  # the network is as it was
