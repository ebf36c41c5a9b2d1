"""DE-ELBO in the Trainer of Hugging Face: `attach(trainer)` before `trainer.train()` is the only new line."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import torch
from torch import nn

from deelbo._head import Head
from deelbo._modules import eval_mode, unwrap
from deelbo._seeds import own_randomness
from deelbo.attachment import Attachment, bare_optimizer
from deelbo.objective import DataEmphasizedELBO
from deelbo.posteriors import IsotropicPosterior
from deelbo.priors import GaussianPrior, make_recipe

IGNORED = -100  # label of tokens that do not count
# Optimizers that update the weights during the backward pass, before the KL's gradient can join.
_TOO_EARLY = ("lomo", "adalomo", "layerwise")


class TrainerAttachment:
    """Handle that `attach(trainer)` returns.

    Args:
        trainer: The Trainer.
        objective: The objective that it optimizes.

    Attributes:
        objective: The objective: `objective.prior.variances`, `objective.posterior.scale`, `objective.kappa`.
    """

    def __init__(self, trainer: Any, objective: DataEmphasizedELBO) -> None:
        self.trainer, self.objective = trainer, objective
        self._attachment: Attachment | None = None
        self._max_norm = trainer.args.max_grad_norm or None
        trainer.args.max_grad_norm = 0.0  # the Trainer would clip before the KL's gradient joins
        self._create_optimizer, self._log = trainer.create_optimizer, trainer.log
        trainer.create_optimizer, trainer.log = self._create_and_attach, self._log_with_learned

    def remove(self) -> None:
        """Take everything back, so that the Trainer trains as before."""
        if self._attachment is not None:
            self._attachment.remove()
            self._attachment = None
        self.trainer.create_optimizer, self.trainer.log = self._create_optimizer, self._log
        self.trainer.args.max_grad_norm = self._max_norm or 0.0

    def _create_and_attach(self, *args: Any, **kwargs: Any) -> Any:
        optimizer = self._create_optimizer(*args, **kwargs)
        inner = bare_optimizer(optimizer)  # of accelerate's wrapper, when train() is called again
        if self._attachment is not None and self._attachment.optimizer is not inner:
            self._attachment.remove()
            self._attachment = None
        if self._attachment is None:
            self._attachment = self.objective.attach(inner, self._max_norm)
        several = self.trainer.args.gradient_accumulation_steps > 1
        if several and self.trainer.model_accepts_loss_kwargs and not loss_uses_item_count(self.trainer):
            self.trainer.model_accepts_loss_kwargs = False  # so that the Trainer divides by the number of micro-batches
        return optimizer

    def _log_with_learned(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        if "loss" in logs:  # of training, not of an evaluation
            learned = self.objective.summary()
            logs.update({f"deelbo/{name}": value for name, value in learned.items()})
            logs["deelbo/objective"] = -(float(logs["loss"]) + learned["kl"])
        self._log(logs, *args, **kwargs)


def attach(
    trainer: Any,
    prior: str | GaussianPrior | None = None,
    *,
    kappa: float | None = None,
    num_data: int | None = None,
    head: Head = None,
    init_scale: float = 1e-4,
    scale_update: str = "closed-form",
) -> TrainerAttachment:
    """Let a Trainer learn the regularisation: weights are draws in training steps, and means everywhere else.

    Call it once, before `trainer.train()` and with the pretrained weights in the model: the priors L2-SP and PTYL are
    centred at them. Everything else stays the Trainer's: batches, optimizer, schedule, evaluation, checkpoints and
    `resume_from_checkpoint`, which continues scale and variances too. Its weight decay is switched off, and its
    clipping (`max_grad_norm`) is done after the KL's gradient is added.

    Args:
        trainer: A `transformers.Trainer`, or one of its subclasses, such as TRL's `SFTTrainer`.
        prior: "l2-sp", "l2-zero", "per-layer", "adapters", "ptyl:FILE", or a prior over the model's trainable weights;
            None for "adapters" if the model has LoRA adapters, else "l2-sp".
        kappa: How much the data are emphasised; None for max(1, D/N).
        num_data: N, what the loss is a mean over: the number of training examples or, for language models, of the
            tokens that have a label. Counted in `trainer.train_dataset` if None.
        head: Name of the classifier; found automatically in most networks if None. A language model has none.
        init_scale: Initial standard deviation of the posterior.
        scale_update: How the posterior's scale is learned: "closed-form", or "gradient" as in the paper.

    Returns:
        A handle with the objective; its `remove()` takes everything back.

    Raises:
        ValueError: If the Trainer's settings cannot be served; the message says what to do instead.
    """
    _check(trainer)
    model = unwrap(trainer.model)
    posterior = IsotropicPosterior(model, init_scale=init_scale, seed=trainer.args.seed, scale_update=scale_update)
    names = [name for name, p in model.named_parameters() if p.requires_grad]
    prior = prior or ("adapters" if any("lora_" in name for name in names) else "l2-sp")
    if head is None and _is_causal(model) and not any("modules_to_save" in name for name in names):
        head = []
    made = make_recipe(prior).make(model, head) if isinstance(prior, str) else prior
    number = count_data(trainer) if num_data is None else num_data
    if trainer.args.weight_decay:
        warnings.warn(
            f"weight_decay={trainer.args.weight_decay} of the Trainer is set to 0: the learned prior takes its place",
            stacklevel=2,
        )
        trainer.args.weight_decay = 0.0
    return TrainerAttachment(trainer, DataEmphasizedELBO(posterior, made, number, kappa))


def _check(trainer: Any) -> None:
    args = trainer.args
    if trainer.is_deepspeed_enabled:
        raise ValueError("DeepSpeed keeps weights where no draw can be written: train with DDP instead")
    if trainer.is_fsdp_enabled:
        raise ValueError("weights that are sharded (FSDP) are not supported: train with DDP instead")
    optim = str(getattr(args.optim, "value", args.optim))
    if any(name in optim for name in _TOO_EARLY):
        raise ValueError(f"optim={optim!r} updates the weights during the backward pass: use optim='adamw_torch'")
    if trainer.train_dataset is None:
        raise ValueError("the Trainer has no train_dataset, whose size the objective needs")


def count_data(trainer: Any) -> int:
    """Return N, how many labels the Trainer's loss is a mean over.

    The objective adds KL / (kappa N) to the mean loss, so N times the mean loss must be minus the log-likelihood of the
    training set. Where an example has one label, N counts examples. The loss of a language model is a mean over tokens,
    so N counts those that are predicted: labels other than -100, as the Trainer's collator makes them, without the
    first of each text. Of several labels or numbers for each example, each counts.

    Args:
        trainer: A Trainer with a training set of known length.

    Raises:
        ValueError: If the training set has no length.
    """
    dataset = trainer.train_dataset
    if not hasattr(dataset, "__len__"):
        raise ValueError("the training set has no length: give num_data, the number of examples (or labelled tokens)")
    first = 1 if _is_causal(trainer.model) else 0
    number = 0
    with own_randomness(torch.device("cpu")):
        for i in range(len(dataset)):
            labels = _labels(trainer, i)
            if labels is None or labels.ndim < 2:
                return len(dataset)
            number += int((labels[:, first:] != IGNORED).sum())
    return number


def _labels(trainer: Any, index: int) -> torch.Tensor | None:
    batch = trainer.data_collator([trainer.train_dataset[index]])
    labels = batch.get("labels") if hasattr(batch, "get") else None
    return labels if isinstance(labels, torch.Tensor) else None


def _is_causal(model: nn.Module) -> bool:
    """Tell whether a model predicts each token from those before it, so that its loss leaves out the first."""
    model = unwrap(model)
    base: Any = getattr(model, "get_base_model", lambda: model)()  # of PEFT
    return type(base).__name__.endswith(("ForCausalLM", "LMHeadModel"))


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
    model = trainer.model
    if "num_items_in_batch" not in inspect.signature(trainer.compute_loss).parameters:
        return False
    device = next(model.parameters()).device
    with own_randomness(device), eval_mode(model):
        batch = trainer._prepare_inputs(trainer.data_collator([trainer.train_dataset[0]]))
        losses = [
            float(trainer.compute_loss(model, dict(batch), num_items_in_batch=torch.tensor(items, device=device)))
            for items in (1, 2)
        ]
    return abs(losses[0] - losses[1]) > 1e-3 * abs(losses[0])
