"""What is found out and decided before the first step."""

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss
from torch import nn

from deelbo.likelihoods import Categorical, Gaussian
from deelbo.training.start import Start, Starter

X = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()


def starter(network, head, x=X, y=Y, likelihood=None):
    return Starter(network, likelihood or Categorical(), lambda: [(x[:20], y[:20]), (x[20:], y[20:])], 2, head)


def network(norm=False):
    torch.manual_seed(0)
    middle = nn.BatchNorm1d(16) if norm else nn.Identity()
    return nn.Sequential(nn.Linear(6, 16), middle, nn.Tanh(), nn.Dropout(0.5), nn.Linear(16, 2))


@pytest.mark.parametrize("head_start", ["zero", "ridge", "probe", "random"])
def test_the_classifier_starts_where_it_was_asked_to(head_start):
    net = network()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    start = starter(net, "4").prepare("auto", head_start)
    assert (start.head_start, start.batch_norm) == (head_start, "")
    assert start.frozen_features["accuracy"] > 0.7
    for name in ("0.weight", "0.bias"):
        assert torch.equal(net.state_dict()[name], before[name])
    right = (net.eval()(X).argmax(1) == Y).double().mean()
    if head_start == "zero":
        assert net[4].weight.abs().max() == net[4].bias.abs().max() == 0
    elif head_start == "random":
        assert torch.equal(net[4].weight, before["4.weight"])
    else:
        assert right > 0.9


def test_left_out_examples_are_not_seen():
    """Labels at random cannot be predicted, although the classifier fits them."""
    labels = torch.randint(2, (40,), generator=torch.Generator().manual_seed(1))
    start = starter(network(), "4", y=labels).prepare("frozen", "ridge")
    assert start.frozen_features["accuracy"] < 0.7
    assert start.frozen_features["nll"] > 0.6


def test_how_much_the_features_say_is_measured_against_guessing_by_frequencies():
    """Of labels that are mostly of one class, guessing is better than one in two."""
    labels = (X[:, 0] > 1).long()
    start = starter(network(), "4", y=labels).prepare("frozen", "zero")
    shares = np.bincount(labels) / 40
    assert start.guessing == pytest.approx(log_loss(labels, np.tile(shares, (40, 1))))
    assert start.information == pytest.approx(start.guessing - start.frozen_features["nll"])
    assert not start.doubtful
    labels = labels[torch.randperm(40, generator=torch.Generator().manual_seed(0))]
    assert starter(network(), "4", y=labels).prepare("frozen", "zero").doubtful
    assert Start(guessing=0.7).information is None
    assert not Start(guessing=0.7).doubtful


def test_statistics_are_kept_where_they_are_better_and_estimated_where_they_are_not():
    net = network(norm=True)
    assert starter(net, "4").prepare("auto", "zero").batch_norm == "batch"  # it was never trained
    net.train()(X)
    assert starter(net, "4").prepare("auto", "zero").batch_norm in ("frozen", "batch")
    net[1].running_mean.fill_(1e4)  # statistics of something else: tanh is saturated everywhere
    kept = net[1].running_mean.clone()
    assert starter(net, "4").prepare("auto", "zero").batch_norm == "batch"
    assert torch.equal(net[1].running_mean, kept)  # only tried
    for asked in ("frozen", "running", "batch"):
        assert starter(net, "4").prepare(asked, "zero").batch_norm == asked


def test_a_network_that_does_not_end_with_a_linear_layer_starts_as_it_is():
    net = nn.Sequential(nn.Linear(6, 2), nn.Softplus())
    before = net[0].weight.clone()
    start = starter(net, "0").prepare("auto", "zero")
    assert start == Start("", "random")
    assert torch.equal(net[0].weight, before)
    assert start.describe("categorical") is None


@pytest.mark.parametrize("head_start", ["ridge", "probe"])
def test_a_classifier_that_cannot_be_fitted_is_refused(head_start):
    net = nn.Sequential(nn.Linear(6, 2), nn.Softplus())
    with pytest.raises(ValueError, match="Sequential: it does not end with a linear layer that is its head"):
        starter(net, "0").prepare("auto", head_start)
    net = network()
    with torch.no_grad():
        net[0].weight.fill_(float("nan"))
    assert starter(net, "4").prepare("auto", "zero").head_start == "random"
    with pytest.raises(ValueError, match="the features are not finite numbers"):
        starter(net, "4").prepare("auto", head_start)


class Odd(nn.Module):
    """Networks whose classifier is not called once on a row for each example."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.body = kind, nn.Linear(6, 2)
        self.fc = nn.Linear(2, 2)
        if kind == "tied":
            self.body = nn.Sequential(nn.Linear(6, 2), nn.Linear(2, 2))
            self.body[1].weight = self.fc.weight

    def forward(self, x):
        z = self.body(x).tanh()
        if self.kind == "twice":
            self.fc(z)
        if self.kind == "three dimensions":
            return self.fc(z[:, None, :])[:, 0]
        return self.fc(input=z) if self.kind == "keyword" else self.fc(z)


@pytest.mark.parametrize("kind", ["tied", "twice", "three dimensions", "keyword"])
def test_classifiers_that_are_called_in_other_ways_start_as_they_are(kind):
    net = Odd(kind)
    before = net.fc.weight.clone()
    assert starter(net, "fc").prepare("auto", "zero").head_start == "random"
    assert torch.equal(net.fc.weight, before)


@pytest.mark.parametrize("head_start", ["ridge", "probe"])
def test_a_classifier_without_bias_is_fitted_without_one(head_start):
    net = nn.Sequential(nn.Linear(6, 16), nn.Softplus(), nn.Linear(16, 2, bias=False))
    starter(net, "2").prepare("auto", head_start)
    assert (net(X).argmax(1) == Y).double().mean() > 0.8


def test_ignored_labels_do_not_count():
    labels = Y.clone()
    labels[:5] = -100
    assert starter(network(), "4", y=labels).prepare("auto", "ridge").frozen_features["accuracy"] > 0.7


def test_a_compiled_network_that_ran_before():
    net = torch.compile(network(), backend="eager")
    with torch.no_grad():
        net.eval()(X[:20])
    assert starter(net, "4").prepare("auto", "zero").head_start == "zero"


def test_a_sentence_about_the_features():
    start = starter(network(), "4").prepare("auto", "zero")
    assert "without fine-tuning: accuracy, mean over classes about" in start.describe("categorical")
    assert Start(**start.as_dict()) == start


def test_numbers_have_only_their_main_metric():
    likelihood, y = Gaussian(), X[:, :1] * 3 + 1
    likelihood.fit(y, 1)
    net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    given = Starter(net, likelihood, lambda: [(X, y)], 1, "2")
    start = given.prepare("auto", "zero")
    assert list(start.frozen_features) == ["rmse"]
    assert likelihood.noise.item() == pytest.approx(1.0)  # the outputs are zero
    given.prepare("auto", "ridge")
    assert likelihood.noise.item() == pytest.approx(start.frozen_features["rmse"] / likelihood.spread.item(), rel=1e-4)


def test_the_pull_depends_on_what_the_features_say_and_on_what_training_has_fitted():
    start = Start(dimension=16.0, guessing=2.0, frozen_features={"nll": 1.5})  # they explain a quarter
    assert start.pull(100) == start.pull(1000) == pytest.approx(0.08 * 16)
    assert start.pull(100, nll=0.75) == pytest.approx(0.08 * 4)
    assert start.pull(100, nll=1.6) == 0  # nothing is fitted beyond what the frozen features predict
    unsure = Start(dimension=16.0, guessing=2.0, frozen_features={"nll": 1.9})
    assert unsure.pull(100) == pytest.approx(0.08 * 100)
    assert Start(dimension=16.0, guessing=2.0, frozen_features={"nll": 0.0}).pull(100) == pytest.approx(0.08)
    assert Start(dimension=16.0, guessing=0.0, frozen_features={"nll": 0.0}).pull(100) == pytest.approx(8)  # one class
    assert Start(dimension=16.0).pull(100) == pytest.approx(0.16)  # of several labels
    assert Start().pull(100) == 1
