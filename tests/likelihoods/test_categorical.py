import pytest
import torch
import torch.nn.functional as F

from deelbo.likelihoods import Categorical


def test_it_is_cross_entropy():
    logits, y = torch.randn(6, 4, dtype=torch.float64), torch.randint(4, (6,))
    likelihood = Categorical()
    ignoring = torch.where(torch.arange(6) < 3, y, -100)
    torch.testing.assert_close(likelihood(logits, y), F.cross_entropy(logits, y))
    torch.testing.assert_close(likelihood(logits, ignoring), F.cross_entropy(logits, ignoring))
    expected = torch.distributions.Categorical(logits=logits).log_prob(y)
    torch.testing.assert_close(likelihood.log_prob(logits, y), expected)
    torch.testing.assert_close(likelihood.log_likelihood(logits, y), expected.sum())


def test_balanced_weights_add_up_to_n():
    y = torch.tensor([0, 0, 0, 0, 0, 0, 1, 1, 1, 2])
    logits = torch.randn(10, 3, dtype=torch.float64, requires_grad=True)
    likelihood = Categorical(class_weights="balanced")
    likelihood.fit(y, 3)
    weights = likelihood.weights[y].double()
    assert weights.sum().item() == pytest.approx(10)
    assert [weights[y == c].sum().item() for c in range(3)] == pytest.approx([10 / 3] * 3)
    log_p = torch.distributions.Categorical(logits=logits).log_prob(y)
    expected = -(weights * log_p).sum() / 10
    loss = likelihood(logits, y)
    torch.testing.assert_close(loss, expected)
    gradients = [torch.autograd.grad(value, logits, retain_graph=True)[0] for value in (loss, expected)]
    torch.testing.assert_close(*gradients)
    torch.testing.assert_close(likelihood.log_likelihood(logits, y), (weights * log_p).sum())


def test_what_it_refuses():
    likelihood = Categorical()
    with pytest.raises(ValueError, match="one whole number"):
        likelihood.check(torch.zeros(2, 3), torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"logits, \[examples, classes\]"):
        likelihood.check(torch.zeros(2), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="a label is 7, but the network gives 3 logits"):
        likelihood(torch.zeros(2, 3), torch.tensor([0, 7]))
    with pytest.raises(ValueError, match="one of none, balanced"):
        Categorical(class_weights="some")


def test_predictions_as_rows():
    probabilities = torch.tensor([[0.2, 0.7, 0.1]], dtype=torch.float64)
    row = Categorical().describe(probabilities, ["a", "b", "c"], top=2)[0]
    assert row.columns == {"predicted": "b", "probability": 0.7, "predicted_2": "a", "probability_2": 0.2}
    assert row.details == {"probabilities": {"a": 0.2, "b": 0.7, "c": 0.1}}
