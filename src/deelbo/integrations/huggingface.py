"""DE-ELBO in the Trainer of Hugging Face: `attach(trainer)` before `trainer.train()` is the only new line."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import nn

from deelbo._attached_optimizers import TOO_EARLY, bare_optimizer
from deelbo._head import Head
from deelbo._modules import unwrap
from deelbo.attachment import Attachment
from deelbo.integrations.trainer_loss import count_data, loss_uses_item_count, predicts_tokens
from deelbo.objective import DataEmphasizedELBO
from deelbo.posteriors import IsotropicPosterior
from deelbo.priors import GaussianPrior, make_recipe

_HALF = (torch.float16, torch.bfloat16)


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
        self._max_norm, self._weight_decay = trainer.args.max_grad_norm or None, trainer.args.weight_decay
        self._accepts_loss_kwargs, self._optimizer = trainer.model_accepts_loss_kwargs, trainer.optimizer
        trainer.args.max_grad_norm = 0.0  # the Trainer would clip before the KL's gradient joins
        trainer.args.weight_decay = 0.0
        self._create_optimizer, self._log = trainer.create_optimizer, trainer.log
        trainer.create_optimizer, trainer.log = self._create_and_attach, self._log_with_learned

    def remove(self) -> None:
        """Take everything back, so that the Trainer trains as before; the weights are the means."""
        if self._attachment is not None:
            self._attachment.remove()
            self._attachment = None
        trainer = self.trainer
        if trainer.create_optimizer != self._create_and_attach:
            return  # removed already
        trainer.create_optimizer, trainer.log = self._create_optimizer, self._log
        trainer.args.max_grad_norm, trainer.args.weight_decay = self._max_norm or 0.0, self._weight_decay
        trainer.model_accepts_loss_kwargs = self._accepts_loss_kwargs
        if not trainer.is_in_train:
            trainer.optimizer = self._optimizer  # None, if the Trainer is to make one with its own weight decay

    def _create_and_attach(self, *args: Any, **kwargs: Any) -> Any:
        _check(self.trainer)  # again, because its settings may have changed
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
    if isinstance(getattr(trainer.create_optimizer, "__self__", None), TrainerAttachment):
        raise ValueError("the Trainer is attached already: call remove() of the earlier handle first")
    _check(trainer)
    model = unwrap(trainer.model)
    _lift_adapters(model)
    posterior = IsotropicPosterior(model, init_scale=init_scale, seed=trainer.args.seed, scale_update=scale_update)
    names = [name for name, p in model.named_parameters() if p.requires_grad]
    prior = prior or ("adapters" if any("lora_" in name for name in names) else "l2-sp")
    if head is None and predicts_tokens(model) and not any("modules_to_save" in name for name in names):
        head = []
    made = make_recipe(prior).make(model, head) if isinstance(prior, str) else prior
    number = count_data(trainer) if num_data is None else num_data
    if trainer.args.weight_decay:
        warnings.warn(
            f"weight_decay={trainer.args.weight_decay} of the Trainer is set to 0: the learned prior takes its place",
            stacklevel=2,
        )
    return TrainerAttachment(trainer, DataEmphasizedELBO(posterior, made, number, kappa))


def _check(trainer: Any) -> None:
    args = trainer.args
    if trainer.is_deepspeed_enabled:
        raise ValueError("DeepSpeed keeps weights where no draw can be written: train with DDP instead")
    if trainer.is_fsdp_enabled or getattr(trainer, "is_fsdp_xla_enabled", False):
        raise ValueError("weights that are sharded (FSDP) are not supported: train with DDP instead")
    optim = str(getattr(args.optim, "value", args.optim))
    if any(name in optim for name in TOO_EARLY):
        raise ValueError(f"optim={optim!r} updates the weights during the backward pass: use optim='adamw_torch'")
    if trainer.train_dataset is None:
        raise ValueError("the Trainer has no train_dataset, whose size the objective needs")
    if trainer.model_init is not None:
        raise ValueError(
            "a Trainer with model_init makes a new model in train(), which the prior does not know: give it model= "
            "instead, and attach anew for each model"
        )


def _lift_adapters(model: nn.Module) -> None:
    """Turn adapters of half precision into float32, as PEFT keeps them by default; TRL casts those of QLoRA."""
    half = {name: p for name, p in model.named_parameters() if p.requires_grad and p.dtype in _HALF}
    if half and all("lora_" in name or "modules_to_save" in name for name in half):
        for parameter in half.values():
            parameter.data = parameter.data.float()
        warnings.warn(
            f"{len(half)} adapters, such as {next(iter(half))!r}, are float32 from now on, because half precision "
            "swallows noise of scale 1e-4; the network below them stays as it is",
            stacklevel=3,
        )
