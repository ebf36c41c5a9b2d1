import pytest
import torch
from torch.distributions import MultivariateNormal, kl_divergence

import deelbo
from deelbo.priors import prior_from_source, ptyl
from shared.cases import Net, backbone_vector
from shared.sources import covariance, flat, source


@pytest.mark.parametrize("rank", [0, 1, 3, 5])
def test_ptyl_covariance(rank):
    net = Net()
    size = len(backbone_vector(net))
    mean, variance = torch.randn(size, dtype=torch.float64), torch.rand(size, dtype=torch.float64)
    variance[3] = -1e-9  # rounding of a running variance
    deviations = torch.randn(5, size, dtype=torch.float64)
    prior = ptyl(net, "head", mean, variance, deviations, rank=rank)
    q = deviations[:rank].T
    dense = 0.5 * (variance.clamp(min=0).diag() + q @ q.T / max(rank - 1, 1)) + 0.1 * torch.eye(size)
    prior.set_variances({"backbone": 0.7})
    expected = MultivariateNormal(mean, 0.7 * dense).log_prob(backbone_vector(net))
    assert prior.named_groups()["backbone"].log_prob() == pytest.approx(float(expected), rel=1e-8)


def test_ptyl_refuses_what_does_not_fit():
    net = Net()
    size = len(backbone_vector(net))
    good = {"mean": torch.zeros(size), "variance": torch.ones(size), "deviations": torch.ones(3, size)}
    with pytest.raises(ValueError, match="rank=5, but 3 deviations"):
        ptyl(net, "head", **good)
    with pytest.raises(ValueError, match=rf"deviations must be \[K, {size}\]"):
        ptyl(net, "head", **{**good, "deviations": torch.ones(size, 3)}, rank=3)
    with pytest.raises(ValueError, match=f"mean must be a vector of the {size} weights"):
        ptyl(net, "head", **{**good, "mean": torch.zeros(size + 1)}, rank=3)
    with pytest.raises(ValueError, match="variance of the source posterior has values that are not finite"):
        ptyl(net, "head", **{**good, "variance": torch.full((size,), torch.nan)}, rank=3)
    with pytest.raises(ValueError, match="positive and finite"):
        ptyl(net, "head", **{**good, "variance": torch.zeros(size)}, rank=3, diagonal=0)


@pytest.mark.parametrize("rank", [0, 1, 5])
def test_prior_is_the_dense_gaussian(rank):
    net, posterior = Net(), source()
    prior = prior_from_source(posterior, net, "head", rank, 0.2)
    weights = torch.cat([p.detach().flatten() for n, p in net.named_parameters() if not n.startswith("head")])
    expected = MultivariateNormal(flat(posterior.mean), covariance(posterior, rank, 0.2)).log_prob(weights)
    prior.set_variances({"backbone": 1.0})
    assert prior.named_groups()["backbone"].log_prob() == pytest.approx(float(expected), rel=1e-8)


@pytest.mark.parametrize("rank", [1, 5, 20])
def test_kl_lambda_and_gradients_are_dense_formulas(rank):
    net, sources = Net(), source(rank=20)
    posterior = deelbo.IsotropicPosterior(net, init_scale=0.3, scale_update="gradient")
    prior = prior_from_source(sources, net, "head", rank)
    objective = deelbo.DataEmphasizedELBO(posterior, prior, num_data=7)
    with posterior.sample(seed=0):
        sum(0 * p.sum() for p in net.parameters()).backward()
    objective.backward()
    names = list(sources.mean)
    weights = torch.cat([net.get_parameter(n).detach().flatten() for n in names]).requires_grad_()
    dense, deviation = covariance(sources, rank, 0.1), weights - flat(sources.mean)
    inverse = torch.linalg.inv(dense)
    best = (0.09 * inverse.trace() + deviation @ inverse @ deviation).item() / len(weights)
    assert prior.variances["backbone"] == pytest.approx(best, rel=1e-8)
    q = MultivariateNormal(weights, 0.09 * torch.eye(len(weights), dtype=torch.float64))
    kl = kl_divergence(q, MultivariateNormal(flat(sources.mean), best * dense))
    assert prior.named_groups()["backbone"].kl(posterior) == pytest.approx(kl.item(), rel=1e-8)
    (gradient,) = torch.autograd.grad(kl / posterior.num_params, weights)
    found = torch.cat([net.get_parameter(n).grad.flatten() for n in names])
    torch.testing.assert_close(found, gradient, rtol=1e-7, atol=1e-10)


def test_half_precision_deviations_are_used_in_full():
    net, posterior = Net(dtype=torch.float32), source(dtype=torch.float32)
    posterior.deviations = {n: v.bfloat16() for n, v in posterior.deviations.items()}
    assert prior_from_source(posterior, net, "head").named_groups()["backbone"].covariance.log_det() == pytest.approx(
        float(torch.logdet(covariance(source(dtype=torch.float32), 5, 0.1))), rel=0.01
    )


def test_finetune_starts_there(tmp_path):
    from torch.utils.data import TensorDataset

    from shared.cases import batch

    net = Net(dtype=torch.float32)
    posterior = source(dtype=torch.float32)
    posterior.save(tmp_path / "prior.safetensors")
    x, y = batch(dtype=torch.float32)
    file = f"ptyl:{tmp_path / 'prior.safetensors'}"
    common = {"steps": 3, "batch_size": 6, "learning_rates": (1e-6,), "device": "cpu", "samples": 1}
    result = deelbo.finetune(net, TensorDataset(x, y), "head", prior=file, rank=3, **common)
    torch.testing.assert_close(net.body.weight, posterior.mean["body.weight"], atol=1e-3, rtol=0)
    assert set(result.prior_variances) == {"backbone", "head"}
    with pytest.raises(FileNotFoundError, match="no source posterior"):
        deelbo.finetune(net, TensorDataset(x, y), "head", prior="ptyl:nowhere", **common)
    torch.nn.init.zeros_(net.body.weight)
    with pytest.raises(ValueError, match="rank=9, but"):
        deelbo.finetune(net, TensorDataset(x, y), "head", prior=file, rank=9, **common)
    assert (net.body.weight == 0).all()  # what is refused changes nothing


def test_the_diagonal_matters_and_a_changed_file_is_refused(tmp_path):
    from torch.utils.data import TensorDataset

    from shared.cases import batch

    file = tmp_path / "prior.safetensors"
    source(dtype=torch.float32).save(file)
    data = TensorDataset(*batch(dtype=torch.float32))
    common = {
        "steps": 3,
        "batch_size": 6,
        "learning_rates": (1e-3,),
        "device": "cpu",
        "samples": 1,
        "prior": f"ptyl:{file}",
    }
    narrow, wide = (
        deelbo.finetune(Net(dtype=torch.float32), data, "head", diagonal=diagonal, **common).prior_variances["backbone"]
        for diagonal in (0.01, 10.0)
    )
    assert narrow > 5 * wide

    def stop(event):
        raise KeyboardInterrupt

    run = {"out": tmp_path / "run", **common}
    with pytest.raises(KeyboardInterrupt):
        deelbo.finetune(Net(dtype=torch.float32), data, "head", listener=stop, **run)
    file.unlink()
    source(dtype=torch.float32, seed=1).save(file)
    with pytest.raises(ValueError, match="prior_file"):
        deelbo.finetune(Net(dtype=torch.float32), data, "head", **run)


def test_a_part_of_the_wrong_size_is_damage():
    posterior = source()
    posterior.variance["body.weight"] = posterior.variance["body.weight"].T
    with pytest.raises(ValueError, match=r"damaged body\.weight"):
        prior_from_source(posterior, Net(), "head")
    posterior = source()
    posterior.deviations["norm.bias"] = posterior.deviations["norm.bias"][:2]
    with pytest.raises(ValueError, match=r"damaged norm\.bias"):
        prior_from_source(posterior, Net(), "head")
