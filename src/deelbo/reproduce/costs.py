"""How long a training run takes: the paper's times on one A100, ours on one thread of a laptop.

The paper tells the time of a run for CIFAR-10 with N = 50,000; every run has the same number of steps, so the same time
is taken for all sizes. Of BERT-base it tells none. The laptop's times are of docs/results.md (one thread of a busy
machine).
"""

from __future__ import annotations

from deelbo.compare import Trial
from deelbo.training.search import planned_steps

# Minutes of one run: Tab. 2, and for ViT-B/16 and ConvNeXt-Tiny the authors' logs. The ELBO takes as long as DE-ELBO.
PAPER_MINUTES = {
    ("ResNet-50", "map"): 37.0,
    ("ResNet-50", "la-lml"): 70.0,
    ("ResNet-50", "de-elbo"): 33.0,
    ("ViT-B/16", "map"): 136.0,
    ("ViT-B/16", "de-elbo"): 142.0,
    ("ConvNeXt-Tiny", "map"): 75.0,
    ("ConvNeXt-Tiny", "la-lml"): 134.0,  # twice DE-ELBO's: the paper says so of LA-LML in general
    ("ConvNeXt-Tiny", "de-elbo"): 67.0,
}
PTYL_MINUTES = {("ResNet-50", "de-elbo"): 36.0}

STEP_SECONDS = {"image": 0.33, "text": 0.8}  # of EfficientNet-Lite0 at 64 pixels and MiniLM at 48 tokens, batches of 32
# How much longer a run takes than the same number of MAP steps: the Fisher information after every epoch or at the end.
FACTORS = {"la-lml": 4.0, "elbo": 1.2, "de-elbo": 1.2}
CLML_FACTOR = 1.6


def paper_seconds(network: str, trial: Trial) -> float | None:
    """Return the seconds of a run on the paper's machine; None if the paper does not tell.

    Args:
        network: Name of the network in the paper.
        trial: The run.
    """
    method = {"elbo": "de-elbo"}.get(trial.settings.method, trial.settings.method)
    key = network, method
    minutes = PTYL_MINUTES.get(key) if trial.settings.prior.startswith("ptyl") else None
    minutes = minutes or PAPER_MINUTES.get(key)
    return None if minutes is None else 60 * minutes * planned_steps(trial.settings) / trial.settings.steps


def laptop_seconds(kind: str, trial: Trial) -> float:
    """Return the seconds of a run on one thread of a laptop.

    Args:
        kind: "image" or "text".
        trial: The run.
    """
    factor = FACTORS.get(trial.settings.method, 1.0) * (CLML_FACTOR if trial.clml else 1.0)
    return STEP_SECONDS[kind] * planned_steps(trial.settings) * factor
