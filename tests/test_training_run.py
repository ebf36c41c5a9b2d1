"""A training run without the call around it."""

import torch

from deelbo import Settings
from deelbo.training.device import Execution
from deelbo.training.sets import TrainingSets
from deelbo.training_run import TrainingRun
from shared.digits import FAST, digits, network, quick

SETTINGS = {name: value for name, value in FAST.items() if name != "device"}


def test_it_is_what_finetune_does():
    data = digits()[0]
    run = TrainingRun(network(), TrainingSets(data, data), Settings(**SETTINGS), Execution("cpu"), head="4")
    result, called = run.train(), quick()
    assert result.objective == called.objective
    assert (result.settings.pairs, result.blend) == (False, 1.0)  # decided, though the settings left it open
    assert all(torch.equal(a, b) for a, b in zip(result.model.parameters(), called.model.parameters(), strict=True))
