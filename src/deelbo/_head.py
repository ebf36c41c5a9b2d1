"""Dividing the parameters of a network into the classifier V (the head) and the backbone w."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from deelbo._modules import select, trainable, unwrap

Head = str | Iterable[str] | None  # name or names of the classifier; None to find it automatically

# Attribute names of classifiers in torchvision, timm, Hugging Face and common practice, most specific first.
_USUAL_NAMES = ("classification_head", "classifier", "fc", "heads", "head", "score", "last_linear", "logits", "_fc")


def split_head(
    model: nn.Module, head: str | Iterable[str] | None, deterministic: Iterable[str] = ()
) -> tuple[dict[str, nn.Parameter], dict[str, nn.Parameter]]:
    """Divide the trainable parameters into backbone and head.

    Args:
        model: Any network.
        head: Name of the classifier module or parameter, or several names; found by `find_head` if None. An empty list
            for a network without a new classifier, such as a language model.
        deterministic: Names (or prefixes) of parameters that belong to neither, because they stay point estimates.

    Returns:
        Backbone and head, each by name; the backbone may be empty (a frozen network), and the head if it was an empty
        list.

    Raises:
        ValueError: If the head has no trainable parameter; the message names candidates.
    """
    parameters = trainable(model, bfloat16=True)
    prefixes = find_head(model) if head is None else [head] if isinstance(head, str) else list(head)
    for prefix in prefixes:
        if not select(parameters, [prefix]):
            network = type(unwrap(model)).__name__
            by_name = dict(unwrap(model).named_parameters(remove_duplicate=False))
            matches = select(by_name, [prefix])
            tied = [name for name, p in parameters.items() if any(p is by_name[match] for match in matches)]
            reason = f'is tied to "{tied[0]}" in' if tied else "is frozen in" if matches else "names no parameter of"
            raise ValueError(f'head "{prefix}" {reason} {network}; candidates: {", ".join(_candidates(model))}')
    names = set(select(parameters, prefixes))
    left_out = set(select(parameters, [deterministic] if isinstance(deterministic, str) else deterministic))
    parameters = {name: p for name, p in parameters.items() if name not in left_out}
    backbone = {name: p for name, p in parameters.items() if name not in names}
    return backbone, {name: p for name, p in parameters.items() if name in names}


def find_head(model: nn.Module) -> list[str]:
    """Return the names of the classifier modules of a timm, torchvision, Hugging Face or PEFT model.

    Args:
        model: A network that says what its classifier is (timm's `pretrained_cfg`, a Hugging Face base model), or
            calls it by a usual name.

    Raises:
        ValueError: If none is found; the message names candidates.
    """
    network = unwrap(model)
    names = list(trainable(network, bfloat16=True))
    finders = (_timm_head, _peft_head, _hugging_face_head, _usual_head)
    for head in (finder(network, names) for finder in finders):
        if head and select(names, head):
            return head
    raise ValueError(
        f"cannot tell which part of {type(network).__name__} is the classifier; "
        f"pass head=..., candidates: {', '.join(_candidates(network))}"
    )


def _timm_head(network: nn.Module, names: list[str]) -> list[str]:
    config = getattr(network, "pretrained_cfg", None)
    head = config.get("classifier") if isinstance(config, dict) else getattr(config, "classifier", None)
    return [head] if isinstance(head, str) else list(head or ())


def _peft_head(network: nn.Module, names: list[str]) -> list[str]:
    """Return the modules that PEFT trains in full beside the adapters."""
    part = ".modules_to_save"
    return sorted({name.split(part)[0] + part for name in names if f"{part}." in name})


def _hugging_face_head(network: nn.Module, names: list[str]) -> list[str]:
    """Return all that is outside the base model: the classifier, with its own hidden layers if it has some."""
    prefix = getattr(network, "base_model_prefix", None)
    if not isinstance(prefix, str) or prefix not in dict(network.named_children()):
        return []
    return sorted({name.split(".")[0] for name in names if not name.startswith(f"{prefix}.")})


def _usual_head(network: nn.Module, names: list[str]) -> list[str]:
    """Return the last layer with weights below the topmost attribute that has one of the usual names."""
    owners = [name.rsplit(".", 1)[0] for name in names if "." in name]
    depth = {usual: [o.split(".").index(usual) for o in owners if usual in o.split(".")] for usual in _USUAL_NAMES}
    highest = {usual: min(depths) for usual, depths in depth.items() if depths}
    if not highest:
        return []
    top = min(highest.values())
    usual = next(u for u in _USUAL_NAMES if highest.get(u) == top)
    matches = [owner for owner in owners if usual in owner.split(".") and owner.split(".").index(usual) == top]
    matrices = [name for name, p in network.named_parameters() if p.ndim > 1]
    # A classifier is the last layer; a layer with such a name elsewhere (in a block, below another head) is not one.
    return [matches[-1]] if matrices and matrices[-1].startswith(f"{matches[-1]}.") else []


def _candidates(model: nn.Module) -> list[str]:
    """Return linear layers with trainable weights, from the output backwards, or else the last modules with weights."""
    network = unwrap(model)
    parameters = trainable(network, bfloat16=True)
    linear = [n for n, m in network.named_modules() if isinstance(m, nn.Linear) and n and select(parameters, [n])]
    owners = linear or list(dict.fromkeys(name.rsplit(".", 1)[0] for name in parameters))
    return [f'"{name}"' for name in owners[::-1][:8]]
