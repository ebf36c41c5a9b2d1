"""The Trainer of Hugging Face with one line more, beside an explicit loop."""

import copy
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
import transformers
from torch.utils.data import Dataset

import deelbo
from deelbo.integrations import huggingface
from shared.pictures import tiny_bert

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*pin_memory.*"),
]


def bert(classes=3, **config):
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = transformers.BertConfig(vocab_size=30, num_labels=classes, **sizes, **none, **config)
    return transformers.BertForSequenceClassification(config)


def gpt():
    torch.manual_seed(0)
    none = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=30, n_embd=16, n_layer=1, n_head=2, n_positions=16, **none)
    )


class Texts(Dataset):
    """Twelve texts of five tokens; the label is a class, or each token for a language model."""

    def __init__(self, tokens=False):
        generator = torch.Generator().manual_seed(0)
        self.ids = torch.randint(5, 30, (12, 5), generator=generator)
        self.labels = self.ids.clone() if tokens else self.ids[:, 0] % 3
        if tokens:
            self.labels[:, 3] = -100

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.labels[i]}


def arguments(out, **changed):
    usual = {
        "per_device_train_batch_size": 4,
        "num_train_epochs": 2,
        "learning_rate": 0.05,
        "optim": "sgd",
        "lr_scheduler_type": "linear",
        "max_grad_norm": 1.0,
        "logging_steps": 1,
        "save_strategy": "no",
        "use_cpu": True,
        "report_to": [],
        "disable_tqdm": True,
        "seed": 3,
    }
    return transformers.TrainingArguments(str(out), **{**usual, **changed})


def attached(out, model=None, data=None, **changed):
    trainer = transformers.Trainer(model or bert(), arguments(out, **changed), train_dataset=data or Texts())
    return trainer, huggingface.attach(trainer)


def explicit(trainer, model, micro=1):
    """Train as the Trainer does, with an explicit loop over its batches."""
    args = trainer.args
    posterior = deelbo.IsotropicPosterior(model, seed=args.seed)
    objective = deelbo.DataEmphasizedELBO(posterior, deelbo.priors.l2_sp(model), len(trainer.train_dataset))
    optimizer = torch.optim.SGD(posterior.parameters(), lr=args.learning_rate)
    transformers.set_seed(args.seed)
    batches = []
    loader = trainer.get_train_dataloader()
    for epoch in range(int(args.num_train_epochs)):
        loader.set_epoch(epoch)
        batches += list(loader)
    steps = len(batches) // micro
    schedule = transformers.get_scheduler("linear", optimizer, num_warmup_steps=0, num_training_steps=steps)
    model.train()
    for step in range(steps):
        optimizer.zero_grad()
        for batch in batches[step * micro : (step + 1) * micro]:
            with posterior.sample():
                (model(**batch).loss / micro).backward()
        objective.backward()
        torch.nn.utils.clip_grad_norm_(posterior.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return objective


def assert_same(model, other, rtol=0.0):
    for (name, one), two in zip(model.state_dict().items(), other.state_dict().values(), strict=True):
        torch.testing.assert_close(one, two, rtol=rtol, atol=rtol, msg=lambda text, name=name: f"{name}: {text}")


def test_the_same_weights_as_an_explicit_loop(tmp_path):
    trainer, handle = attached(tmp_path)
    trainer.train()
    other = bert()
    objective = explicit(trainer, other)
    assert_same(trainer.model, other, rtol=1e-6)
    assert handle.objective.prior.variances == pytest.approx(objective.prior.variances, rel=1e-5)
    assert handle.objective.posterior.scale.item() == pytest.approx(objective.posterior.scale.item(), rel=1e-5)


@pytest.mark.parametrize("micro", [1, 2, 4])
def test_accumulation_changes_neither_gradient_nor_kl(tmp_path, micro, monkeypatch):
    """A full batch of twelve in micro-batches: the gradient before the step is the same, up to the draws."""
    norms = []
    add = deelbo.DataEmphasizedELBO.add_kl_gradient

    def watched(self, loss_scale):
        weights = list(self.posterior.means.values())
        before = [p.grad.clone() for p in weights]
        add(self, loss_scale)
        norms.append(float(torch.stack([g.square().sum() for g in before]).sum().sqrt()))
        kl = [p.grad - g for p, g in zip(weights, before, strict=True)]
        norms.append(float(torch.stack([g.square().sum() for g in kl]).sum().sqrt()))

    monkeypatch.setattr(deelbo.DataEmphasizedELBO, "add_kl_gradient", watched)
    model = bert()
    for p in model.parameters():
        p.data += 0.01 * torch.randn(p.shape, generator=torch.Generator().manual_seed(1))
    sizes = {"per_device_train_batch_size": 12 // micro, "gradient_accumulation_steps": micro}
    trainer = transformers.Trainer(model, arguments(tmp_path, max_steps=1, **sizes), train_dataset=Texts())
    prior = deelbo.priors.l2_sp(bert())
    groups = {
        name: deelbo.priors.PriorGroup(
            [dict(model.named_parameters())[n] for n in group.names],
            mean=[dict(bert().named_parameters())[n].detach() for n in group.names],
        )
        for name, group in prior.named_groups().items()
    }
    huggingface.attach(trainer, deelbo.priors.GaussianPrior(groups), init_scale=1e-6)
    trainer.train()
    assert norms == pytest.approx(REFERENCE.setdefault("norms", norms), rel=1e-3)
    assert min(norms) > 0


REFERENCE: dict[str, list[float]] = {}


def test_a_language_model_counts_tokens(tmp_path):
    trainer, handle = attached(tmp_path, gpt(), Texts(tokens=True), gradient_accumulation_steps=2)
    assert handle.objective.num_data == 12 * 3  # five, without the first and one that is ignored
    trainer.train()
    assert huggingface.loss_uses_item_count(trainer)
    assert trainer.model_accepts_loss_kwargs
    assert attached(tmp_path, bert())[1].objective.num_data == 12


def test_adapters_of_a_language_model(tmp_path):
    peft = pytest.importorskip("peft")
    lora = peft.LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=["c_attn"], fan_in_fan_out=True)
    model = peft.get_peft_model(gpt(), lora)
    trainer, handle = attached(tmp_path, model, Texts(tokens=True))
    assert sorted(handle.objective.prior.variances) == ["lora_A", "lora_B"]
    assert handle.objective.num_data == 36
    trainer.train()
    assert all(0 < value < 1 for value in handle.objective.prior.variances.values())


def test_supervised_fine_tuning_by_trl(tmp_path):
    trl, datasets = pytest.importorskip("trl"), pytest.importorskip("datasets")
    texts = Texts(tokens=True)
    rows = [{"input_ids": i.tolist(), "labels": y.tolist()} for i, y in zip(texts.ids, texts.labels, strict=True)]
    usual = arguments(tmp_path, gradient_accumulation_steps=3).to_dict()
    names = ("per_device_train_batch_size", "num_train_epochs", "learning_rate", "optim", "logging_steps", "use_cpu")
    args = trl.SFTConfig(
        str(tmp_path),
        dataset_kwargs={"skip_prepare_dataset": True},
        eos_token=None,
        bf16=False,
        report_to=[],
        save_strategy="no",
        gradient_accumulation_steps=3,
        **{name: usual[name] for name in names},
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_bert(tmp_path / "bert"))
    data = datasets.Dataset.from_list(rows)
    trainer = trl.SFTTrainer(model=gpt(), args=args, train_dataset=data, processing_class=tokenizer)
    handle = huggingface.attach(trainer)
    assert handle.objective.num_data == 36
    trainer.train()
    assert trainer.model_accepts_loss_kwargs
    last = [row for row in trainer.state.log_history if "loss" in row][-1]
    assert 0 < last["deelbo/kl"] < 10
    assert last["deelbo/variance_backbone"] > 0


def test_classifiers_ignore_the_number_of_items(tmp_path):
    trainer, _ = attached(tmp_path, gradient_accumulation_steps=3)
    trainer.train()
    assert not trainer.model_accepts_loss_kwargs


def test_logs_have_what_is_learned_and_clipping_and_decay_are_ours(tmp_path):
    trainer = transformers.Trainer(bert(), arguments(tmp_path, weight_decay=0.1), train_dataset=Texts())
    with pytest.warns(UserWarning, match="set to 0"):
        handle = huggingface.attach(trainer)
    assert (trainer.args.weight_decay, trainer.args.max_grad_norm) == (0, 0)
    trainer.train()
    rows = [row for row in trainer.state.log_history if "loss" in row]
    names = {"variance_backbone", "variance_head", "scale", "kappa", "kl", "objective"}
    assert names <= {name.removeprefix("deelbo/") for name in rows[-1]}
    assert rows[-1]["deelbo/objective"] == pytest.approx(-(rows[-1]["loss"] + rows[-1]["deelbo/kl"]))
    handle.remove()
    assert trainer.args.max_grad_norm == 1.0
    assert handle.objective.posterior.attachment is None


def test_evaluation_and_saving_see_the_means(tmp_path):
    seen = []

    class Watch(transformers.TrainerCallback):
        def on_substep_end(self, args, state, control, model=None, **kwargs):
            seen.append({n: p.clone() for n, p in model.state_dict().items()})

        def on_step_end(self, args, state, control, model=None, **kwargs):
            model.save_pretrained(tmp_path / f"at-{state.global_step}")

    trainer = transformers.Trainer(
        bert(),
        arguments(tmp_path, gradient_accumulation_steps=3, num_train_epochs=1, eval_strategy="steps", eval_steps=1),
        train_dataset=Texts(),
        eval_dataset=Texts(),
        callbacks=[Watch()],
    )
    huggingface.attach(trainer)
    start = {n: p.clone() for n, p in trainer.model.state_dict().items()}
    trainer.train()
    assert all(torch.equal(state[name], start[name]) for state in seen for name in start)  # between micro-batches
    saved = transformers.BertForSequenceClassification.from_pretrained(tmp_path / "at-1")
    assert_same(saved, trainer.model)


def test_an_exception_in_a_step_leaves_the_means(tmp_path):
    class Fails(transformers.Trainer):
        def compute_loss(self, *args, **kwargs):
            loss = super().compute_loss(*args, **kwargs)
            if self.state.global_step == 2:
                raise RuntimeError("in the loss")
            return loss

    states = []

    class Watch(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, model=None, **kwargs):
            states.append(copy.deepcopy(model.state_dict()))

    trainer = Fails(bert(), arguments(tmp_path), train_dataset=Texts(), callbacks=[Watch()])
    huggingface.attach(trainer)
    with pytest.raises(RuntimeError, match="in the loss"):
        trainer.train()
    assert all(torch.equal(states[-1][n], p) for n, p in trainer.model.state_dict().items())


@pytest.mark.parametrize("precision", ["bf16"])
def test_autocast_and_checkpointing(tmp_path, precision):
    trainer, handle = attached(tmp_path, gradient_checkpointing=True, **{precision: True})
    trainer.train()
    assert all(bool(p.isfinite().all()) for p in trainer.model.parameters())
    assert handle.objective.posterior.scale.item() > 1e-4


def test_best_model_at_the_end(tmp_path):
    changed = {"save_strategy": "steps", "eval_strategy": "steps", "save_steps": 2, "eval_steps": 2}
    trainer = transformers.Trainer(
        bert(), arguments(tmp_path, load_best_model_at_end=True, **changed), train_dataset=Texts(), eval_dataset=Texts()
    )
    huggingface.attach(trainer)
    trainer.train()
    best = transformers.BertForSequenceClassification.from_pretrained(trainer.state.best_model_checkpoint)
    assert_same(best, trainer.model)


def test_training_again_goes_on(tmp_path):
    trainer, handle = attached(tmp_path)
    trainer.train()
    first = handle.objective.posterior.scale.item()
    trainer.train()
    assert handle.objective.posterior.scale.item() != first


@pytest.mark.parametrize(("changed", "message"), [({"optim": "lomo"}, "updates the weights during")])
def test_what_cannot_be_served(tmp_path, changed, message):
    trainer = transformers.Trainer(bert(), arguments(tmp_path), train_dataset=Texts())
    for name, value in changed.items():
        setattr(trainer.args, name, value)
    with pytest.raises(ValueError, match=message):
        huggingface.attach(trainer)
    with pytest.raises(ValueError, match="train_dataset"):
        huggingface.attach(transformers.Trainer(bert(), arguments(tmp_path)))


KILLED = """
import os, signal, sys
sys.path[:0] = {path!r}
import transformers
from integrations_case import arguments, Texts, bert
from deelbo.integrations import huggingface

class Kill(transformers.TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == {at}:
            os.kill(os.getpid(), signal.SIGKILL)

changed = dict(save_strategy="steps", save_steps=2, optim="adamw_torch")
trainer = transformers.Trainer(bert(), arguments({out!r}, **changed), train_dataset=Texts(), callbacks=[Kill()])
handle = huggingface.attach(trainer)
trainer.train(resume_from_checkpoint={resume})
trainer.model.save_pretrained({out!r} + "/final")
"""


def test_killed_and_resumed_is_uninterrupted(tmp_path):
    """In processes of their own: one is killed after three steps of six, and goes on from its second."""
    case = tmp_path / "integrations_case.py"
    case.write_text(Path(__file__).read_text())

    def run(out, at, resume):
        path = [str(tmp_path), str(Path(__file__).parents[1])]
        code = KILLED.format(path=path, at=at, out=str(tmp_path / out), resume=resume)
        return subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
        )

    whole = run("whole", -1, None)
    assert whole.returncode == 0, whole.stderr[-2000:]
    assert run("killed", 3, None).returncode == -signal.SIGKILL
    again = run("killed", -1, True)
    assert again.returncode == 0, again.stderr[-2000:]
    load = transformers.BertForSequenceClassification.from_pretrained
    assert_same(load(tmp_path / "whole" / "final"), load(tmp_path / "killed" / "final"))
    assert os.listdir(tmp_path / "killed")
