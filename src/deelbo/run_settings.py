"""What the settings of a run leave open until its network is known, and what else must be the same to continue it."""

from __future__ import annotations

from typing import Any

from torch import nn

from deelbo import events
from deelbo._modules import unwrap
from deelbo.models.sentences import SentenceClassifier
from deelbo.training.device import Execution
from deelbo.training.settings import Settings

PAIRED = (
    "a sentence encoder, few classes and few texts: texts of one class are drawn together and others apart, and the "
    "classifier is fitted at the end; pairs=False trains all weights with the classifier"
)


def decide(
    settings: Settings, network: nn.Module, number: int, num_outputs: int, listener: events.Listener = events.ignore
) -> Settings:
    """Return settings that say how this network is trained best, and tell the user if that is by pairs.

    Args:
        settings: Settings of the run.
        network: The network.
        number: Number of training examples.
        num_outputs: Number of outputs for an example.
        listener: Called with a note for the user.
    """
    decided = settings.decided(isinstance(unwrap(network), SentenceClassifier), number, num_outputs)
    if decided.pairs and settings.pairs is None:
        listener(events.Note(PAIRED))
    return decided


def about_run(settings: Settings, execution: Execution) -> dict[str, Any]:
    """Return what else must be the same when a run is continued: the precision, and the content of the prior's file."""
    fingerprint = settings.prior_recipe().fingerprint()
    return {"precision": execution.precision, **({} if fingerprint is None else {"prior_file": fingerprint})}
