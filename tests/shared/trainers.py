"""Tiny networks and texts for the Trainers of Hugging Face and TRL, and the loop that they run, written out."""

import copy
import os
import signal
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
import transformers
from torch.utils.data import Dataset

import deelbo
from deelbo.integrations import huggingface
from shared.pictures import tiny_bert
from shared.processes import environment


def bert(dropout=0.0, **config):
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    dropouts = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    config = transformers.BertConfig(vocab_size=30, num_labels=3, **sizes, **dropouts, **config)
    return transformers.BertForSequenceClassification(config)


def language_model(dropout=0.0):
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=30, attention_dropout=dropout, **sizes))


class Texts(Dataset):
    """Twelve texts of five tokens; the label is a class, or each token for a language model."""

    def __init__(self, tokens=False):
        generator = torch.Generator().manual_seed(0)
        self.ids = torch.randint(5, 30, (12, 5), generator=generator)
        self.labels = self.ids.clone() if tokens else self.ids[:, 0] % 3
        if tokens:
            self.labels[:, 3] = -100
            self.labels[:6, 4] = -100  # so that not all batches have as many

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.labels[i]}


CLIP = 0.2  # below the norms of most gradients here
USUAL = {
    "per_device_train_batch_size": 4,
    "num_train_epochs": 2,
    "learning_rate": 0.05,
    "optim": "sgd",
    "lr_scheduler_type": "linear",
    "max_grad_norm": CLIP,
    "logging_steps": 1,
    "save_strategy": "no",
    "use_cpu": True,
    "report_to": [],
    "disable_tqdm": True,
    "seed": 3,
}


def arguments(out, **changed):
    return transformers.TrainingArguments(str(out), **{**USUAL, **changed})


def classifier(out, model=None, kind=transformers.Trainer, callbacks=None, **changed):
    """Return a Trainer of a classifier of texts."""
    data = {"train_dataset": Texts(), "eval_dataset": Texts()}
    return kind(model or bert(), arguments(out, **changed), callbacks=callbacks, **data)


def sft(out, model=None, callbacks=None, **changed):
    """Return TRL's Trainer of a language model, on the same texts."""
    import datasets
    import trl

    texts = Texts(tokens=True)
    rows = [{"input_ids": i.tolist(), "labels": y.tolist()} for i, y in zip(texts.ids, texts.labels, strict=True)]
    own = {"dataset_kwargs": {"skip_prepare_dataset": True}, "eos_token": None, "gradient_checkpointing": False}
    args = trl.SFTConfig(str(out), **{**USUAL, "bf16": False, **own, **changed})
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_bert(out / "bert"))
    data = {"train_dataset": datasets.Dataset.from_list(rows), "processing_class": tokenizer}
    return trl.SFTTrainer(model=model or language_model(), args=args, callbacks=callbacks, **data)


class Written:
    """The same training by a loop that is written out.

    Args:
        trainer: A Trainer, for its batches and settings.
        model: The network as it was before training.
        micro: Number of micro-batches in a step.
        skipped: Steps whose gradients are thrown away.

    Attributes:
        objective: The objective.
        states: The network's weights before the first step and after each.
        losses: The mean loss of each step, under its draw of the weights.
    """

    def __init__(self, trainer, model, micro=1, skipped=()):
        args = trainer.args
        posterior = deelbo.IsotropicPosterior(model, seed=args.seed)
        tokens = hasattr(model, "lm_head")
        prior = deelbo.priors.l2_sp(model, head=[] if tokens else None)
        self.objective = deelbo.DataEmphasizedELBO(posterior, prior, 30 if tokens else 12)
        optimizer = torch.optim.SGD(posterior.parameters(), lr=args.learning_rate)
        batches = self._batches(trainer)
        groups = [batches[start : start + micro] for start in range(0, len(batches), micro)]
        schedule = transformers.get_scheduler("linear", optimizer, num_warmup_steps=0, num_training_steps=len(groups))
        self.model, self.states, self.losses = model.train(), [copy.deepcopy(model.state_dict())], []
        for step, group in enumerate(groups):
            optimizer.zero_grad()
            items = sum(int((batch["labels"][..., 1:] != -100).sum()) for batch in group)
            self.losses.append(0.0)
            for batch in group:
                with posterior.sample():
                    loss = token_loss(model, batch) / items if tokens else model(**batch).loss / len(group)
                    loss.backward()
                self.losses[-1] += loss.item()
            if step not in skipped:
                self.objective.backward()
                torch.nn.utils.clip_grad_norm_(posterior.parameters(), CLIP)
                optimizer.step()
                schedule.step()
            self.states.append(copy.deepcopy(model.state_dict()))

    def _batches(self, trainer):
        transformers.set_seed(trainer.args.seed)
        loader = trainer.get_train_dataloader()
        batches = []
        for epoch in range(int(trainer.args.num_train_epochs)):
            loader.set_epoch(epoch)
            batches += list(loader)
        return batches


def token_loss(model, batch):
    """Return the sum of the losses of all tokens that have a label, each predicted from those before it."""
    logits = model(input_ids=batch["input_ids"]).logits[:, :-1]
    return F.cross_entropy(logits.flatten(0, 1), batch["labels"][:, 1:].flatten(), ignore_index=-100, reduction="sum")


def assert_same_state(state, other, rtol=1e-6):
    assert state.keys() == other.keys()
    for name, one in state.items():
        torch.testing.assert_close(
            one, other[name], rtol=rtol, atol=rtol, msg=lambda text, name=name: f"{name}: {text}"
        )


def assert_same_training(trainer, handle, written):
    """Compare weights, variances, scale and losses of a Trainer with those of the written loop."""
    assert_same_state(trainer.model.state_dict(), written.states[-1])
    objective = handle.objective
    assert objective.prior.variances == pytest.approx(written.objective.prior.variances, rel=1e-5)
    assert objective.posterior.scale.item() == pytest.approx(written.objective.posterior.scale.item(), rel=1e-5)
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    assert losses == pytest.approx(written.losses, rel=1e-3)  # which some versions round


# ---- to be killed ----


class Kill(transformers.TrainerCallback):
    """Kills its process after a step."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def train_and_save(kind, out, kill_at=None, resume=None):
    """Train with dropout and AdamW, with a checkpoint after every second of six steps."""
    make, model = {"classifier": (classifier, bert), "sft": (sft, language_model)}[kind]
    changed = {"save_strategy": "steps", "save_steps": 2, "optim": "adamw_torch", "learning_rate": 1e-2}
    trainer = make(out, model(dropout=0.2), callbacks=[Kill(kill_at)], **changed)
    handle = huggingface.attach(trainer)
    trainer.train(resume_from_checkpoint=resume)
    return trainer, handle


def kill_while_training(kind, out, kill_at):
    """Do the same in a process of its own, which is killed; return its exit code."""
    code = f"import pathlib, shared.trainers as t; t.train_and_save({kind!r}, pathlib.Path({str(out)!r}), {kill_at})"
    return subprocess.run([sys.executable, "-c", code], env=environment(), check=False).returncode
