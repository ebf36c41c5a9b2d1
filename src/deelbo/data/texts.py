"""Texts as networks take them: tokenised once, padded to the longest text of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.utils.data import Dataset

from deelbo.data.examples import Examples
from deelbo.data.targets import as_tensor


class TextSet(Dataset):
    """Dataset of tokenised texts: dictionaries of tokens, with the label under "labels".

    Args:
        examples: Texts with their labels.
        tokenizer: The network's tokenizer, from Hugging Face.
        max_length: Number of tokens of a text at most; longer texts are cut.
    """

    def __init__(self, examples: Examples, tokenizer: Any, max_length: int) -> None:
        self.examples, self.tokenizer = examples, tokenizer
        encoded = tokenizer(examples.inputs, truncation=True, max_length=max_length)
        self.tokens = [{name: values[i] for name, values in encoded.items()} for i in range(len(examples))]

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {**self.tokens[index], "labels": self.examples.labels[index]}

    def collate(self, rows: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        """Return a batch, padded to its longest text."""
        tokens = [{name: value for name, value in row.items() if name != "labels"} for row in rows]
        # A fast tokenizer would recommend its __call__ instead, which would tokenise at every step.
        self.tokenizer.deprecation_warnings["Asking-to-pad-a-fast-tokenizer"] = True
        padded = self.tokenizer.pad(tokens, return_tensors="pt")
        return {**padded, "labels": as_tensor([row["labels"] for row in rows])}


def longest(tokenizer: Any, network: Any, wanted: int | None) -> int:
    """Return how many tokens a text may have.

    Args:
        tokenizer: The network's tokenizer.
        network: The network, whose number of position embeddings is a limit too.
        wanted: Number that the user wants; None for as many as the network takes, and at most 512.

    Raises:
        ValueError: If more are wanted than the network takes.
    """
    positions = getattr(getattr(network, "config", None), "max_position_embeddings", None) or 10**9
    possible = min(tokenizer.model_max_length, positions)
    if wanted is None:
        return min(possible, 512)
    if not 1 <= wanted <= possible:
        raise ValueError(f"max_length={wanted}: the network takes 1 to {possible} tokens")
    return wanted
