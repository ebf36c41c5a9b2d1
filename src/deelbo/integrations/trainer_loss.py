"""What the loss of a Hugging Face Trainer is a mean over: which labels count, and who divides by their number."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import torch
from torch import nn

from deelbo._modules import eval_mode, unwrap
from deelbo._seeds import own_randomness

IGNORED = -100  # label of tokens that do not count


def count_data(trainer: Any) -> int:
    """Return N, how many labels the Trainer's loss is a mean over.

    The objective adds KL / (kappa N) to the mean loss, so N times the mean loss must be minus the log-likelihood of the
    training set. Where an example has one label, N counts examples. The loss of a language model is a mean over tokens,
    so N counts those that are predicted: labels other than -100, as the Trainer's collator makes them, without the
    first of each text. (For some networks, such as GPT-2, the Trainer divides by all labels; then N is their number.)
    Of several labels or numbers for each example, each counts.

    Args:
        trainer: A Trainer with a training set of known length.

    Raises:
        ValueError: If the training set has no length, or no label to count.
    """
    dataset = trainer.train_dataset
    if not hasattr(dataset, "__len__"):
        raise ValueError("the training set has no length: give num_data, the number of examples (or labelled tokens)")
    first = 1 if shifts_labels(trainer) else 0
    number = 0
    with own_randomness(torch.device("cpu")):
        for i in range(len(dataset)):
            batch = _batch(trainer, dataset[i])
            labels = batch.get("labels") if hasattr(batch, "get") else None
            if not isinstance(labels, torch.Tensor) or labels.ndim < 2:
                return len(dataset)
            number += int((labels[:, first:] != IGNORED).sum())
    if not number:
        raise ValueError(
            "no token of the training set has a label: have the collator make labels (for a causal model "
            "DataCollatorForLanguageModeling with mlm=False), or give num_data"
        )
    return number


def _batch(trainer: Any, example: Any) -> Any:
    """Return a batch of one example, as the Trainer makes it: without columns that the network does not take."""
    collate = trainer.data_collator
    if isinstance(example, dict):
        collate = trainer._get_collator_with_removed_columns(collate)
    return collate([example])


def bare_model(model: nn.Module) -> Any:
    """Return the network inside the wrappers of PyTorch and PEFT."""
    model = unwrap(model)
    return getattr(model, "get_base_model", lambda: model)()


def shifts_labels(trainer: Any) -> bool:
    """Tell whether the first label of each text is left out, in the number that the Trainer's loss is divided by."""
    if trainer.model_accepts_loss_kwargs:  # the Trainer counts, older versions every label
        return bool(getattr(trainer, "_loss_shifts_labels", False))
    return type(bare_model(trainer.model)).__name__.endswith(("ForCausalLM", "LMHeadModel"))


def predicts_tokens(model: nn.Module) -> bool:
    """Tell whether a network is a language model, whose output layer is pretrained and no new classifier."""
    base = bare_model(model)
    return hasattr(base, "get_output_embeddings") and base.get_output_embeddings() is not None


@torch.no_grad()
def loss_uses_item_count(trainer: Any) -> bool:
    """Tell whether the loss is divided by the number of items that the Trainer passes, by trying it on an example.

    Most classifiers accept the number and ignore it; their loss is then a mean over a micro-batch, and must be divided
    by the number of micro-batches, which the Trainer leaves out because the number was accepted.

    Args:
        trainer: A Trainer with a training set.
    """
    if trainer.compute_loss_func is not None:
        return True
    model, dataset = trainer.model, trainer.train_dataset
    if "num_items_in_batch" not in inspect.signature(trainer.compute_loss).parameters:
        return False
    device = next(model.parameters()).device
    metrics = copy.deepcopy(getattr(trainer, "_metrics", None))  # of TRL, which would count this try
    with own_randomness(device), eval_mode(model):
        example = dataset[0] if hasattr(dataset, "__len__") else next(iter(dataset))
        batch = trainer._prepare_inputs(_batch(trainer, example))
        losses = [
            float(trainer.compute_loss(model, dict(batch), num_items_in_batch=torch.tensor(items, device=device)))
            for items in (1, 2)
        ]
    if metrics is not None:
        trainer._metrics = metrics
    return abs(losses[0] - losses[1]) > 1e-3 * abs(losses[0])
