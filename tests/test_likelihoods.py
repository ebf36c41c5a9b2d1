import pytest
import torch
import torch.nn.functional as F
from torch.distributions import Normal

import deelbo
from deelbo.likelihoods import Categorical, Gaussian


def test_categorical_is_cross_entropy():
    logits, y = torch.randn(6, 4, dtype=torch.float64), torch.randint(4, (6,))
    likelihood = Categorical()
    ignoring = torch.where(torch.arange(6) < 3, y, -100)
    torch.testing.assert_close(likelihood(logits, y), F.cross_entropy(logits, y))
    torch.testing.assert_close(likelihood(logits, ignoring), F.cross_entropy(logits, ignoring))
    expected = torch.distributions.Categorical(logits=logits).log_prob(y)
    torch.testing.assert_close(likelihood.log_prob(logits, y), expected)
    torch.testing.assert_close(likelihood.log_likelihood(logits, y), expected.sum())


@pytest.mark.parametrize("shape", [(6,), (6, 1), (6, 3)])
def test_gaussian_agrees_with_torch_distributions(shape):
    output, y = torch.randn(shape, dtype=torch.float64), torch.randn(shape, dtype=torch.float64)
    likelihood = Gaussian(noise=0.3).double()
    expected = Normal(output, 0.3).log_prob(y).reshape(6, -1).sum(1)
    torch.testing.assert_close(likelihood.log_prob(output, y), expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(likelihood(output, y), -expected.mean(), rtol=1e-6, atol=1e-6)


def test_broadcasting_targets_are_refused():
    with pytest.raises(ValueError, match="same shape"):
        Gaussian()(torch.zeros(5, 1), torch.zeros(5))


def test_noise_is_learned_beside_the_weights():
    x = torch.randn(400, 1)
    y = 2 * x + 0.2 * torch.randn(400, 1)
    net, likelihood = torch.nn.Linear(1, 1), Gaussian()
    posterior = deelbo.IsotropicPosterior(net, init_scale=1e-3)
    prior = deelbo.priors.GaussianPrior({"all": deelbo.priors.PriorGroup(net.parameters())})
    objective = deelbo.DataEmphasizedELBO(posterior, prior, num_data=400)
    optimizer = torch.optim.Adam([*posterior.parameters(), *likelihood.parameters()], lr=0.05)
    for _ in range(300):
        optimizer.zero_grad()
        with posterior.sample():
            likelihood(net(x), y).backward()
        objective.backward()
        optimizer.step()
    assert likelihood.noise.item() == pytest.approx(0.2, rel=0.1)
    assert net.weight.item() == pytest.approx(2, rel=0.05)
