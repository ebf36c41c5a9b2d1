"""A prior for low-rank adapters: the product starts at zero, and so do its means."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from deelbo._head import Head
from deelbo._modules import select, trainable
from deelbo.priors.base import PRIORS, PriorRecipe
from deelbo.priors.gaussian import GaussianPrior, PriorGroup

_SAVED = ".modules_to_save"


def adapters(model: nn.Module, deterministic: Iterable[str] = ()) -> GaussianPrior:
    """Return a prior for a model with adapters of PEFT: A ~ N(A_0, lambda_A I), B ~ N(0, lambda_B I), V ~ N(0, tau I).

    LoRA changes a weight matrix by B A, with A at random and B at zero at the start, so that the change is zero. The
    prior of A is centred at that start, that of B at zero. The same holds for embeddings (`lora_embedding_A`, `_B`).
    Modules that are trained in full (`modules_to_save`, such as a new classifier) are around zero; whatever else is
    trained, such as biases or the magnitudes of DoRA, is around where it starts.

    Args:
        model: A model that `peft.get_peft_model` returned.
        deterministic: Names of parameters that stay point estimates in the posterior, and so have no prior.

    Raises:
        ValueError: If the model has no adapters.
    """
    weights = trainable(model, bfloat16=True)
    left_out = set(select(weights, [deterministic] if isinstance(deterministic, str) else deterministic))
    found: dict[str, dict[str, nn.Parameter]] = {"lora_A": {}, "lora_B": {}, "other": {}, "head": {}}
    for name, parameter in weights.items():
        if name not in left_out:
            found[_group(name)][name] = parameter
    if not found["lora_B"]:
        raise ValueError(
            f"{type(model).__name__} has no trainable LoRA adapters: make them with peft.get_peft_model, or use the "
            "prior l2-sp"
        )
    around_start = ("lora_A", "other")
    return GaussianPrior(
        {
            name: PriorGroup(group, mean=list(group.values()) if name in around_start else None)
            for name, group in found.items()
            if group
        }
    )


def _group(name: str) -> str:
    if _SAVED in name:
        return "head"
    if "lora_A" in name or "lora_embedding_A" in name:
        return "lora_A"
    if "lora_B" in name or "lora_embedding_B" in name:
        return "lora_B"
    return "other"


@PRIORS.register("adapters", "LoRA adapters of PEFT: A around its start, B around zero")
class Adapters(PriorRecipe):
    """A around its start, B and the classifier around zero; too many variances for a search."""

    name = "adapters"

    def make(self, network: nn.Module, head: Head = None) -> GaussianPrior:
        """Return `adapters(network)`; PEFT says itself what the head is."""
        return adapters(network)
