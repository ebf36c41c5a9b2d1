"""DE-ELBO in Lightning: a callback for `lightning.Trainer`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from deelbo._extras import require
from deelbo._head import Head
from deelbo.attachment import Attachment
from deelbo.objective import DataEmphasizedELBO
from deelbo.posteriors import IsotropicPosterior
from deelbo.priors import GaussianPrior, make_recipe

if TYPE_CHECKING:
    from lightning.pytorch import Callback
else:
    try:
        from lightning.pytorch import Callback
    except ModuleNotFoundError:  # the older name of the same library
        Callback = require("pytorch_lightning", "lightning").Callback


class DeelboCallback(Callback):
    """Lets a module learn its regularisation: weights are draws in training steps, and means everywhere else.

    Give it to `lightning.Trainer(callbacks=[...])`; the module stays as it is, with automatic optimisation and one
    optimizer over all its trainable weights. Its `gradient_clip_val` is done after the KL's gradient is added.
    Checkpoints have scale, variances, draws and the prior's mean in the optimizer's state, so that `fit(ckpt_path=...)`
    continues them.

    Args:
        prior: "l2-sp", "l2-zero", "per-layer", "adapters", "ptyl:FILE", or a prior over the network's weights.
        network: Name of the attribute of the module that is called in `training_step`, such as "model"; the module
            itself, called as `self(x)`, if None.
        kappa: How much the data are emphasised; None for max(1, D/N).
        num_data: N, the number of training examples; the length of the training loader's dataset if None.
        head: Name of the classifier in the network; found automatically in most networks if None.
        init_scale: Initial standard deviation of the posterior.
        scale_update: How the posterior's scale is learned: "closed-form", or "gradient" as in the paper.
        seed: Seed of the draws.

    Attributes:
        objective: The objective, from the beginning of `fit` on.
    """

    def __init__(
        self,
        prior: str | GaussianPrior = "l2-sp",
        *,
        network: str | None = None,
        kappa: float | None = None,
        num_data: int | None = None,
        head: Head = None,
        init_scale: float = 1e-4,
        scale_update: str = "closed-form",
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.prior, self.network, self.kappa, self.num_data, self.head = prior, network, kappa, num_data, head
        self.init_scale, self.scale_update, self.seed = init_scale, scale_update, seed
        self.objective: DataEmphasizedELBO | None = None
        self._attachment: Attachment | None = None

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Attach the objective: after the optimizer is made, and before a checkpoint's state is loaded into it."""
        _check(trainer, pl_module)
        network = self._network(pl_module)
        if self.objective is None or self.objective.posterior.model is not network:
            self.objective = self._make(trainer, network)
        self._max_norm, trainer.gradient_clip_val = trainer.gradient_clip_val, None
        try:
            self._attachment = self.objective.attach(trainer.optimizers[0], self._max_norm or None)
        except ValueError:
            trainer.gradient_clip_val = self._max_norm
            raise

    def _network(self, pl_module: nn.Module) -> nn.Module:
        if self.network is None:
            return pl_module
        names = [name for name, _ in pl_module.named_modules()]
        if self.network not in names:
            children = ", ".join(f'"{name}"' for name, _ in pl_module.named_children())
            raise ValueError(f'network="{self.network}" is no part of {type(pl_module).__name__}, which has {children}')
        return pl_module.get_submodule(self.network)

    def _make(self, trainer: Any, network: nn.Module) -> DataEmphasizedELBO:
        number = self.num_data
        if number is None:
            trainer.fit_loop.setup_data()
            loader = trainer.train_dataloader
            dataset = getattr(loader, "dataset", None)
            if not hasattr(dataset, "__len__"):
                raise ValueError("the training data have no length: give num_data to DeelboCallback")
            number = len(dataset)  # type: ignore[arg-type]
        posterior = IsotropicPosterior(
            network, init_scale=self.init_scale, seed=self.seed, scale_update=self.scale_update
        )
        prior = make_recipe(self.prior).make(network, self.head) if isinstance(self.prior, str) else self.prior
        return DataEmphasizedELBO(posterior, prior, number, self.kappa)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Refuse a network in eval mode, in which no weights are drawn."""
        if not self._network(pl_module).training:
            name = "the module" if self.network is None else f'"{self.network}"'
            raise ValueError(
                f"{name} is in eval mode, as from_pretrained leaves it and Lightning keeps it: call its train() "
                "before fit()"
            )

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Log the learned values, as often as the Trainer logs."""
        if self.objective is None or trainer.global_step % max(1, trainer.log_every_n_steps):
            return
        summary = self.objective.summary()
        pl_module.log_dict({f"deelbo/{name}": torch.tensor(value) for name, value in summary.items()})

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Write the means back."""
        self._detach(trainer)

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Take the hooks away; the module has the means."""
        self._detach(trainer)

    def _detach(self, trainer: Any) -> None:
        if self._attachment is not None:
            self._attachment.remove()
            self._attachment = None
            trainer.gradient_clip_val = self._max_norm


def _check(trainer: Any, pl_module: Any) -> None:
    """Refuse what cannot be served, by name and with what to do instead."""
    if not pl_module.automatic_optimization:
        raise ValueError("DeelboCallback needs automatic optimisation; with manual use objective.attach(optimizer)")
    if len(trainer.optimizers) != 1:
        raise ValueError(f"DeelboCallback needs one optimizer, and the module has {len(trainer.optimizers)}")
    if any(word in type(trainer.strategy).__name__ for word in ("DeepSpeed", "FSDP", "ModelParallel")):
        raise ValueError(f"strategy {type(trainer.strategy).__name__} shards the weights: use DDP instead")
    if trainer.precision in ("16-true", "bf16-true", "transformer-engine", "transformer-engine-float16"):
        raise ValueError(
            f'precision="{trainer.precision}" keeps the weights in half precision, which swallows noise of scale 1e-4: '
            'use "bf16-mixed" or "16-mixed"'
        )
    if trainer.gradient_clip_algorithm not in (None, "norm") and trainer.gradient_clip_val:
        raise ValueError("DeelboCallback clips by norm only: leave gradient_clip_algorithm out")
