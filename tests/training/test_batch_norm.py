import torch
from torch import nn

from deelbo.training.batch_norm import has_statistics, refresh_batch_norm, train_mode


def test_statistics_are_those_of_the_data_at_the_weights_in_place():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.9), nn.Linear(4, 2)).double()
    net[1].running_mean.fill_(9)
    x = torch.randn(32, 3, dtype=torch.float64)
    net.train()
    refresh_batch_norm(net, [x[:16], x[16:]])
    hidden = net[0](x).detach()
    torch.testing.assert_close(net[1].running_mean, hidden.mean(0))
    torch.testing.assert_close(net[1].running_var, (hidden[:16].var(0) + hidden[16:].var(0)) / 2)
    assert net[1].momentum == 0.1
    assert all(m.training for m in net.modules())


def test_networks_without_batch_norm_are_not_called():
    refresh_batch_norm(nn.Linear(2, 2), iter([None]))


def test_layers_that_the_network_keeps_frozen_stay_as_they_are():
    class Frozen(nn.Sequential):
        def train(self, mode=True):
            super().train(mode)
            self[1].eval()
            return self

    net = Frozen(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.BatchNorm1d(4))
    net[1].running_mean.fill_(9)
    net.eval()
    refresh_batch_norm(net, [torch.randn(16, 3)])
    assert (net[1].running_mean == 9).all()
    assert (net[2].running_mean != 0).any()
    assert not any(m.training for m in net.modules())


class WithDropout(nn.Module):
    """A network whose dropout is no module."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x):
        return nn.functional.dropout(self.norm(x), 0.5, self.training)


def test_statistics_are_kept_in_training():
    net, x = WithDropout(), torch.randn(16, 3) + 5
    net.norm.running_mean.fill_(5.0)
    train_mode(net, "frozen", dropout=True)
    net(x).sum().backward()
    assert (net.norm.running_mean == 5).all()
    assert net.norm.weight.grad is not None  # scales and shifts are trained
    train_mode(net, "batch", dropout=True)
    net(x)
    assert (net.norm.running_mean != 5).all()


def test_training_without_dropout_of_any_form():
    net, x = WithDropout(), torch.randn(16, 3)
    train_mode(net, "batch", dropout=False)
    assert net.norm.training
    assert torch.equal(net(x), net(x))
    train_mode(net, "batch", dropout=True)
    assert not torch.equal(net(x), net(x))


def test_new_layers_have_no_statistics():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    assert not has_statistics(net)
    net.train()(torch.randn(8, 3))
    assert has_statistics(net)
