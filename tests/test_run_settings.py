"""What a run's settings leave open, decided for a network."""

from types import SimpleNamespace

from torch import nn

from deelbo import Settings, events
from deelbo.models.sentences import SentenceClassifier
from deelbo.run_settings import PAIRED, about_run, decide
from deelbo.training.device import Execution


def encoder():
    network = nn.Identity()
    network.config = SimpleNamespace(hidden_size=4)
    return SentenceClassifier(network, "mean", 3)


def test_few_texts_are_trained_by_pairs_and_the_user_is_told():
    notes = []
    decided = decide(Settings(), nn.DataParallel(encoder()), 30, 3, notes.append)
    assert (decided.pairs, notes) == (True, [events.Note(PAIRED)])
    assert decide(Settings(pairs=True), encoder(), 30, 3, notes.append).pairs  # the user has said it
    assert len(notes) == 1


def test_other_networks_are_trained_by_classes():
    decided = decide(Settings(), nn.Linear(4, 3), 30, 3)
    assert (decided.pairs, decided.blend) == (False, 1.0)
    assert decide(Settings(), encoder(), 300, 3).blend is None  # chosen at the end of training


def test_what_must_be_the_same_to_continue():
    assert about_run(Settings(), Execution(precision="bf16")) == {"precision": "bf16"}
