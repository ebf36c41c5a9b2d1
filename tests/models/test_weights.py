"""Units that are folded into the last layer of a network."""

import torch
from torch import nn

from deelbo.models.weights import fold_units

INPUTS = torch.randn(2, 3, generator=torch.Generator().manual_seed(0))
LOCATION, SPREAD = torch.tensor([100.0, -3.0], dtype=torch.float64), torch.tensor([5.0, 0.1], dtype=torch.float64)


class Ends(nn.Module):
    """Ends with a linear layer, or with what is given after it."""

    def __init__(self, after=nn.Identity()):
        super().__init__()
        torch.manual_seed(0)
        self.fc = nn.Linear(3, 4)  # a usual name of a classifier, but it is none
        self.out, self.after = nn.Linear(4, 2), after

    def forward(self, x):
        return self.after(self.out(self.fc(x).tanh()))


def call(network):
    return network(INPUTS)


@torch.no_grad()
def test_the_layer_that_is_called_last():
    network = Ends()
    wanted = LOCATION + SPREAD * call(network)
    assert fold_units(network, LOCATION, SPREAD, call)
    torch.testing.assert_close(call(network).double(), wanted, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_a_network_whose_outputs_would_be_wrong_stays_as_it_is():
    far = torch.tensor([1e9, 0.0], dtype=torch.float64)  # more digits than float32 has
    for network, location in ((Ends(nn.Tanh()), LOCATION), (Ends(nn.Softplus()), LOCATION), (Ends(), far)):
        before = call(network)
        assert not fold_units(network, location, SPREAD, call)
        assert torch.equal(call(network), before)


@torch.no_grad()
def test_without_inputs_only_a_sequence_is_certain():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    wanted = LOCATION + SPREAD * call(network)
    assert fold_units(network, LOCATION, SPREAD)
    torch.testing.assert_close(call(network).double(), wanted, rtol=1e-5, atol=1e-5)
    assert not fold_units(Ends(), LOCATION, SPREAD)
    assert not fold_units(nn.Sequential(nn.Linear(3, 2), nn.Tanh()), LOCATION, SPREAD)
    assert not fold_units(nn.Sequential(nn.Linear(3, 2, bias=False)), LOCATION, SPREAD)
