"""Networks that end between their pretrained and their trained weights: by a slow formula, and where it is default."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import deelbo
from deelbo.likelihoods import Categorical
from deelbo.training.blend import SHARES, blend
from deelbo.training.last_layer import LastLayer
from deelbo.training.settings import LEARNING_RATES
from shared.candidates import candidate
from shared.digits import digits, network, quick
from shared.sentences import finetuned_texts


def with_last_layer():
    running = candidate()
    running.last_layer = LastLayer(running.network[3])
    return running


def test_weights_are_on_the_line_and_the_classifier_is_fitted_there():
    running = with_last_layer()
    running.batch_norm = "frozen"  # so that the statistics stay
    initial = copy.deepcopy(running.network.state_dict())
    for _ in running.advance(20):
        pass
    trained = copy.deepcopy(running.network.state_dict())
    assert blend(running, initial, 0.25) == 0.25
    for name, weight in running.network[:3].named_parameters():
        expected = 0.75 * initial[name] + 0.25 * trained[name]
        torch.testing.assert_close(weight.detach(), expected)
        assert not torch.equal(initial[name], trained[name])
    x, y = running.plain_set.tensors
    layer = nn.Linear(32, 10)
    running.network.eval()
    with torch.no_grad():
        features = running.network[:3](x)
    LastLayer(layer).fit(features, y, Categorical())
    torch.testing.assert_close(running.network[3].weight, layer.weight, rtol=1e-3, atol=1e-4)


@pytest.fixture
def allowed(monkeypatch):
    """Set how much of the features' variance may lie within classes; 1 lets every blend pass."""
    return lambda spread: monkeypatch.setattr("deelbo.training.blend.SPREAD", spread)


@pytest.mark.parametrize("share", [SHARES[0], SHARES[3], SHARES[-2]])
def test_it_goes_back_while_classes_stay_together(share, allowed):
    running = with_last_layer()
    running.batch_norm = "frozen"
    initial = copy.deepcopy(running.network.state_dict())
    for _ in running.advance(60):
        pass
    trained = copy.deepcopy(running.network.state_dict())
    x, y = running.plain_set.tensors
    spreads = []
    for tried in SHARES:
        for name, weight in running.network.named_parameters():
            weight.data = (1 - tried) * initial[name] + tried * trained[name]
        with torch.no_grad():
            features = running.network.eval()[:3](x).double()
        means = torch.stack([features[y == label].mean(0) for label in y])
        spreads.append(((features - means).square().sum() / (features - features.mean(0)).square().sum()).item())
    assert spreads == sorted(spreads, reverse=True)
    running.network.load_state_dict(trained)
    allowed(spreads[SHARES.index(share)] + 1e-6)
    assert blend(running, initial, None) == share


def test_a_network_whose_classes_move_apart_keeps_nearly_all_of_its_training(allowed):
    """Its classifier, which a few steps have hardly trained, is fitted."""
    running = with_last_layer()
    running.batch_norm = "frozen"
    initial = copy.deepcopy(running.network.state_dict())
    for _ in running.advance(4):
        pass
    right = running.share_right()
    trained = copy.deepcopy(running.network.state_dict())
    allowed(0.0)
    assert blend(running, initial, None) == 0.95
    name = "0.weight"
    expected = 0.05 * initial[name] + 0.95 * trained[name]
    torch.testing.assert_close(running.network.state_dict()[name], expected)
    assert running.share_right() > right + 0.1


def test_a_blend_that_unlearns_training_examples_is_undone_unless_it_was_asked_for(allowed):
    allowed(1.0)
    running = with_last_layer()
    for _ in running.advance(20):
        pass
    running.objective(final=True)
    trained = copy.deepcopy(running.network.state_dict())
    initial = {name: -value for name, value in trained.items()}  # all features vanish in the middle
    assert blend(running, initial, None) == 1
    for name, value in running.network.state_dict().items():
        assert torch.equal(value, trained[name])
    assert blend(running, initial, 0.5) == 0.5
    assert running.network[0].weight.abs().max() < 1e-6


def test_batch_statistics_are_those_of_the_blended_network():
    running = with_last_layer()
    running.batch_norm = "batch"
    initial = copy.deepcopy(running.network.state_dict())
    for _ in running.advance(20):
        pass
    running.objective(final=True)
    blend(running, initial, 0.5)
    blended = {name: buffer.clone() for name, buffer in running.network.named_buffers()}
    running.refresh_batch_norm()
    for name, buffer in running.network.named_buffers():
        torch.testing.assert_close(buffer, blended[name])


def test_a_run_is_the_same_until_its_end(tmp_path):
    trained, blended = (quick(blend=share, out=tmp_path / f"{share}") for share in (1.0, 0.7))
    assert blended.objective == trained.objective  # the rate is chosen by the trained network
    assert [row["nll"] for row in blended.history] == [row["nll"] for row in trained.history]
    assert (trained.calibration.source, blended.calibration.source) == ("training set", "none")
    assert blended.fitted_classifier
    assert not trained.fitted_classifier
    assert blended.evaluate(digits()[1])["accuracy"] > 0.5
    again = deelbo.load(tmp_path / "0.7", network())
    x = torch.stack([x for x, _ in digits()[1]][:20])
    torch.testing.assert_close(again.predict(x), blended.predict(x))


@pytest.mark.parametrize(
    ("number", "settings", "expected"),
    [
        (42, {}, SHARES[0]),
        (12, {}, 1.0),
        (12, {"pairs": False}, SHARES[0]),
        (42, {"blend": 1.0}, 1.0),
        (42, {"blend": 0.3}, 0.3),
        (42, {"method": "elbo"}, 1.0),
    ],
    ids=["more texts", "few texts have pairs", "not by pairs", "not wanted", "given", "another method"],
)
def test_a_sentence_encoder_is_blended_by_default(number, settings, expected, allowed):
    allowed(1.0)
    result, notes = finetuned_texts(number, **settings)
    assert result.blend == expected
    assert (result.settings.learning_rates == LEARNING_RATES) is not bool(result.settings.pairs)
    assert sum("50% of the way" in note for note in notes) == (expected == SHARES[0])


def test_a_sentence_encoder_says_why_it_keeps_its_weights(monkeypatch):
    monkeypatch.setattr("deelbo.training.blend.UNLEARNED", -2.0)  # as if every blend predicted fewer texts rightly
    result, notes = finetuned_texts(42)
    assert result.blend == 1
    assert sum("keeps its trained weights" in note for note in notes) == 1


def test_a_network_of_another_kind_is_not_blended_by_default():
    assert quick().blend == 1


def test_what_cannot_be_blended_is_refused():
    for share in (0.0, 1.5, -0.1):
        with pytest.raises(ValueError, match=f"blend={share} is out of range"):
            deelbo.Settings(blend=share)
    with pytest.raises(ValueError, match=r"blend=0\.5 is only for method=de-elbo or elbo"):
        deelbo.Settings(method="map", blend=0.5, prior_variances={"backbone": 1, "head": 1})
    numbers = TensorDataset(torch.randn(8, 64), torch.randn(8, 10))
    with pytest.raises(ValueError, match=r"blend=0\.5 needs classes; the task is regression"):
        deelbo.finetune(network(), numbers, head="4", blend=0.5, steps=2, device="cpu")
    ends_with_softmax = nn.Sequential(*network(), nn.LogSoftmax(1))
    with pytest.raises(ValueError, match=r"blend=0\.5 needs a network that ends with a linear layer"):
        deelbo.finetune(ends_with_softmax, digits()[0], head="4", blend=0.5, steps=2, device="cpu", head_start="random")
