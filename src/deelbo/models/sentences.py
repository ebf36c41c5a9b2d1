"""Sentence encoders: a classifier on the average (or first, last, largest) of the tokens, as the encoder was trained.

A sentence encoder says in `modules.json` and its pooling folder how it turns tokens into one vector. The classifiers of
transformers ignore that: BERT's reads the first token through a layer that the encoder's training never used.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from deelbo._extras import require
from deelbo._files import write_json, write_tensors

# Our names of the poolings and those of sentence-transformers.
POOLINGS = {"mean": "mean", "first": "cls", "last": "lasttoken", "max": "max"}
OWN = "own"  # the classifier that transformers has for the architecture


class SentenceClassifier(nn.Module):
    """A transformer whose tokens are pooled to one vector, dropout, and a linear classifier.

    Args:
        encoder: Transformer of Hugging Face without a classifier.
        pooling: "mean", "first", "last" or "max" of the tokens.
        num_outputs: Number of outputs for a text.

    Example:
        >>> import torch
        >>> from deelbo.models.sentences import pool
        >>> tokens = torch.tensor([[[1.0], [3.0], [9.0]]])  # one text of two tokens and a padding
        >>> mask = torch.tensor([[1, 1, 0]])
        >>> [pool(tokens, mask, name).item() for name in ("mean", "first", "last", "max")]
        [2.0, 1.0, 3.0, 3.0]
    """

    def __init__(self, encoder: Any, pooling: str, num_outputs: int) -> None:
        super().__init__()
        self.encoder, self.pooling, self.config = encoder, pooling, encoder.config
        self.max_length: int | None = None  # number of tokens of a text at most, for `save_pretrained`
        self.config.sentence_pooling = pooling  # config.json keeps it, so that a run knows it again
        rate = getattr(self.config, "classifier_dropout", None)
        self.dropout = nn.Dropout(getattr(self.config, "hidden_dropout_prob", 0.0) if rate is None else rate)
        self.classifier = nn.Linear(self.config.hidden_size, num_outputs)
        nn.init.normal_(self.classifier.weight, std=getattr(self.config, "initializer_range", 0.02))
        nn.init.zeros_(self.classifier.bias)

    def forward(self, attention_mask: Tensor, **inputs: Tensor) -> Tensor:
        """Return the outputs for tokenised texts, [texts, outputs]."""
        tokens = self.encoder(attention_mask=attention_mask, **inputs).last_hidden_state
        return self.classifier(self.dropout(pool(tokens, attention_mask, self.pooling)))

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the network as a model of sentence-transformers, whose `encode` then gives the outputs of a text."""
        folder = Path(folder)
        self.encoder.save_pretrained(folder)
        out_features, in_features = self.classifier.weight.shape
        if self.max_length is not None:
            write_json(folder / "sentence_bert_config.json", {"max_seq_length": self.max_length})
        write_json(
            folder / "modules.json",
            [
                {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
                for i, (path, kind) in enumerate(
                    [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Dense", "Dense")],
                )
            ],
        )
        write_json(
            folder / "1_Pooling" / "config.json",
            {"word_embedding_dimension": in_features, "pooling_mode": POOLINGS[self.pooling]},
        )
        write_json(
            folder / "2_Dense" / "config.json",
            {
                "in_features": in_features,
                "out_features": out_features,
                "bias": True,
                "activation_function": "torch.nn.modules.linear.Identity",
            },
        )
        weights = {"linear.weight": self.classifier.weight.detach(), "linear.bias": self.classifier.bias.detach()}
        write_tensors(folder / "2_Dense" / "model.safetensors", weights)


def renamed(network: SentenceClassifier, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return weights of the bare encoder, or of transformers' classifier of the architecture, under our names.

    What only they have, a classifier and a pooling layer, is left out; the network keeps its own classifier.

    Args:
        network: The network that the weights are for.
        weights: Weights by name.
    """
    if any(name.startswith("encoder.") and name in network.state_dict() for name in weights):
        return weights
    prefix = f"{network.encoder.base_model_prefix}."
    if any(name.startswith(prefix) for name in weights):
        weights = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
    kept = {f"encoder.{name}": value for name, value in weights.items() if not name.startswith("pooler.")}
    return {**kept, **{name: v for name, v in network.state_dict().items() if name.startswith("classifier.")}}


def pool(tokens: Tensor, mask: Tensor, pooling: str) -> Tensor:
    """Return one vector for each text.

    Args:
        tokens: Vectors of the tokens, [texts, tokens, width].
        mask: 1 for a token and 0 for a padding, [texts, tokens].
        pooling: "mean", "first", "last" or "max" of the tokens.
    """
    mask = torch.where(mask.any(1, keepdim=True), mask, 1)  # of a text without tokens the paddings count
    present = mask.bool()
    if pooling == "max":
        return tokens.masked_fill(~present[..., None], -torch.inf).amax(1)
    if pooling == "mean":
        weights = mask[..., None].to(tokens.dtype)
        return (tokens * weights).sum(1) / weights.sum(1)
    position = torch.arange(mask.shape[1], device=mask.device).expand_as(mask)  # paddings may be on either side
    if pooling == "last":
        index = position.masked_fill(~present, -1).amax(1)
    else:
        index = position.masked_fill(~present, mask.shape[1]).amin(1)
    return tokens[torch.arange(len(tokens), device=tokens.device), index]


def stated_pooling(where: str, config: Any) -> str | None:
    """Return how a model says that it pools its tokens; None if it says nothing, or something that we do not know.

    Args:
        where: Name of the model on the hub, or a folder.
        config: Its configuration, which has the pooling if a run of ours wrote it.
    """
    if (kept := getattr(config, "sentence_pooling", None)) is not None:
        return kept
    modules = _read_json(where, "modules.json") or []
    paths = [module["path"] for module in modules if module["type"].split(".")[-1] == "Pooling"]
    stated = _read_json(where, f"{paths[0]}/config.json") if paths else None
    if stated is None:
        return None
    old = {"cls_token": "cls", "mean_tokens": "mean", "max_tokens": "max", "lasttoken": "lasttoken"}
    modes = [mode for key, mode in old.items() if stated.get(f"pooling_mode_{key}")]
    mode = stated.get("pooling_mode") or (modes[0] if len(modes) == 1 else None)
    return next((ours for ours, theirs in POOLINGS.items() if theirs == mode), None)


def _read_json(where: str, name: str) -> Any:
    """Return the content of a file of a model, from its folder, the hub or the hub's cache; None if there is none."""
    find = require("transformers.utils", "text").cached_file
    options = dict.fromkeys(("missing_entries", "gated_repo", "connection_errors"), False)
    path = find(where, name, **{f"_raise_exceptions_for_{key}": value for key, value in options.items()})
    return None if path is None else json.loads(Path(path).read_text(encoding="utf-8"))
