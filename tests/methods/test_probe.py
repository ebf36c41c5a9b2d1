"""The probe as a method: the frozen network with a fitted classifier."""

import math

import torch

import deelbo
from deelbo.training.probe import fit_probe
from shared.digits import digits, network


def test_only_the_classifier_changes():
    net, (train, test) = network(norm=False), digits()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    result = deelbo.finetune(net, train, "4", method="probe", device="cpu")
    assert torch.equal(result.model[0].weight, before["0.weight"])
    with torch.no_grad():
        features = result.model[:3](train[:][0])
    expected = fit_probe(features, train[:][1], result.likelihood, 10)
    found = result.model[4].weight.detach().double()
    torch.testing.assert_close(found - found.mean(0), expected.weight - expected.weight.mean(0), rtol=1e-2, atol=1e-2)
    assert result.evaluate(test)["accuracy"] > 0.7
    assert (result.settings.steps, result.scale, result.history) == (0, None, [])
    assert set(result.prior_variances.values()) == {math.inf}


def test_numbers_have_the_noise_of_left_out_examples():
    x = torch.randn(60, 5, generator=torch.Generator().manual_seed(0))
    y = x[:, 0] + 0.5 * torch.randn(60, generator=torch.Generator().manual_seed(1))
    net = torch.nn.Sequential(torch.nn.Linear(5, 20), torch.nn.Tanh(), torch.nn.Linear(20, 1))
    data = torch.utils.data.TensorDataset(x, y)
    result = deelbo.finetune(net, data, "2", method="probe", device="cpu")
    assert 0.35 < result.predict(x[:1]).std.item() < 0.8


def test_a_probe_is_saved_and_loaded(tmp_path):
    result = deelbo.finetune(network(), digits()[0], "4", method="probe", device="cpu", out=tmp_path / "run")
    again = deelbo.load(tmp_path / "run", network())
    x = digits()[1][:][0][:5]
    torch.testing.assert_close(again.predict(x), result.predict(x))
    assert again.start == result.start
