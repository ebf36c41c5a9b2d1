"""A network that ends between its pretrained and its trained weights (docs/choosing.md has what was measured).

With the share b of the way, weights are (1 - b) * pretrained + b * trained, as in WiSE-FT (Wortsman et al. 2022), and
the classifier is fitted to the features there. After some hundred steps on few examples all of them are fitted, long
before the end of the way; the rest of it can unlearn what the pretrained network knew of others.
How far to go back is read off the training features: as long as examples of one class stay together. Where they are
not together at the end of the way either, as after a few steps, it is a twentieth, so that the classifier, which such
steps have hardly trained, is fitted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

import torch
from torch import Tensor

from deelbo._modules import trainable, unwrap
from deelbo.training.loop import Candidate

SHARES = tuple(k / 20 for k in range(10, 20))  # from half of the way to nearly all of it
SPREAD = 0.4  # part of the features' variance that may lie within classes
UNLEARNED = 0.01  # share of training examples; a blend that predicts so many fewer rightly has gone too far back

BLENDED = (
    "a sentence encoder: the network ends {share:.0%} of the way from its pretrained to its trained weights, with a "
    "classifier that is fitted there; blend=1 keeps the trained weights"
)
NOT_BLENDED = (
    "a sentence encoder: the network keeps its trained weights, since on the way back to the pretrained ones fewer "
    "training texts are predicted rightly"
)


@torch.no_grad()
def blend(candidate: Candidate, initial: Mapping[str, Tensor], share: float | None) -> float:
    """Take a trained network back towards its weights before training, and fit its classifier there.

    Args:
        candidate: The candidate that has trained the network; it knows the last layer.
        initial: State of the network before training.
        share: How far on the line from the initial (0) to the trained weights (1) the network ends; None for the
            smallest of `SHARES` at which the classes stay together, or the largest, unless that unlearns training
            examples.

    Returns:
        The share; 1 if the trained weights were kept.
    """
    network = unwrap(candidate.network)
    trained = {name: value.clone() for name, value in network.state_dict().items()}

    def go_to(share: float) -> None:
        for name, weight in trainable(network).items():
            weight.copy_(torch.lerp(initial[name].to(weight), trained[name], share))
        candidate.refresh_batch_norm()

    def together(share: float) -> bool:
        go_to(share)
        return candidate.spread() <= SPREAD

    right = candidate.share_right()
    # The further back, the larger the spread: so few shares have to be tried. The last one never is.
    wanted = SHARES[bisect_left(SHARES, True, hi=len(SHARES) - 1, key=together)] if share is None else share
    go_to(wanted)
    if candidate.fit_last_layer() >= right - UNLEARNED or share is not None:
        return wanted
    network.load_state_dict(trained)
    return 1.0


def describe_blend(share: float) -> str:
    """Return a sentence for the user about a share that was chosen for a sentence encoder.

    Args:
        share: What `blend` returned.
    """
    return (NOT_BLENDED if share == 1 else BLENDED).format(share=share)
