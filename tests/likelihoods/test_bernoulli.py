import pytest
import torch

from deelbo.likelihoods import Bernoulli


def test_it_agrees_with_torch_distributions():
    logits = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    y = torch.randint(2, (6, 4))
    expected = torch.distributions.Bernoulli(logits=logits).log_prob(y.double()).sum(1)
    likelihood = Bernoulli()
    torch.testing.assert_close(likelihood.log_prob(logits, y), expected)
    torch.testing.assert_close(likelihood.log_likelihood(logits, y), expected.sum())
    losses = likelihood(logits, y), -expected.mean()
    torch.testing.assert_close(*losses)
    torch.testing.assert_close(*(torch.autograd.grad(loss, logits, retain_graph=True)[0] for loss in losses))


def test_balanced_weights_of_each_label_add_up_to_n():
    y = torch.tensor([[1, 0, 1], [0, 0, 1], [0, 1, 1], [0, 0, 1]])  # the last label cannot be balanced
    likelihood = Bernoulli(class_weights="balanced")
    likelihood.fit(y, 3)
    weights = torch.where(y > 0, likelihood.weights[1], likelihood.weights[0])
    assert weights.sum(0).tolist() == pytest.approx([4, 4, 4])
    assert weights[:, 0].tolist() == pytest.approx([2, 2 / 3, 2 / 3, 2 / 3])
    logits = torch.randn(4, 3, dtype=torch.float64)
    log_p = torch.distributions.Bernoulli(logits=logits).log_prob(y.double())
    torch.testing.assert_close(likelihood.log_prob(logits, y), (weights.double() * log_p).sum(1), rtol=1e-6, atol=1e-6)


def test_what_it_refuses():
    with pytest.raises(ValueError, match="a row of 0 and 1"):
        Bernoulli().check(torch.zeros(2, 3), torch.tensor([[0, 2, 1], [0, 0, 0]]))
    with pytest.raises(ValueError, match="a logit for each label"):
        Bernoulli().check(torch.zeros(2, 4), torch.tensor([[0, 1, 1], [0, 0, 0]]))


def test_predictions_as_rows():
    row = Bernoulli().describe(torch.tensor([[0.9, 0.6, 0.1]], dtype=torch.float64), ["a", "b", "c"])[0]
    assert row.columns == {"predicted": "a|b", "probability_a": 0.9, "probability_b": 0.6, "probability_c": 0.1}
