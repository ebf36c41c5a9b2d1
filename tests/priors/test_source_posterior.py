import pytest
import torch
from torch.distributions import MultivariateNormal, kl_divergence

import deelbo
from deelbo.priors import SourcePosterior, load_source_posterior, prior_from_source
from deelbo.swag import read_released
from shared.cases import Net


def source(net=None, rank=6, seed=0, dtype=torch.float64):
    net = net or Net()
    generator = torch.Generator().manual_seed(seed)
    names = {n: p.shape for n, p in net.named_parameters() if not n.startswith("head")}

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=dtype)

    return SourcePosterior(
        {n: normal(*s) for n, s in names.items()},
        {n: normal(*s).square() for n, s in names.items()},
        {n: normal(rank, *s) for n, s in names.items()},
        notes={"made": "here"},
    )


def flat(values, rows=False):
    return torch.cat([v.flatten(1) if rows else v.flatten() for v in values.values()], -1)


def covariance(posterior, rank, diagonal):
    rows = flat(posterior.deviations, rows=True)[:rank]
    dense = 0.5 * (flat(posterior.variance).diag() + rows.T @ rows / max(rank - 1, 1))
    return dense + diagonal * torch.eye(rows.shape[1], dtype=dense.dtype)


def test_file(tmp_path):
    posterior = source()
    posterior.buffers["norm.running"] = torch.ones(3)
    posterior.save(tmp_path / "new" / "prior.safetensors")
    again = load_source_posterior(tmp_path / "new" / "prior.safetensors")
    for part in ("mean", "variance", "deviations", "buffers"):
        first, second = getattr(posterior, part), getattr(again, part)
        assert set(first) == set(second)
        assert all(torch.equal(first[n], second[n]) for n in first)
    assert again.notes["made"] == "here"
    with pytest.raises(FileExistsError, match="exists already"):
        posterior.save(tmp_path / "new" / "prior.safetensors")


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
    posterior = deelbo.IsotropicPosterior(net, init_scale=0.3)
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


def test_draws_have_mean_and_covariance():
    posterior = source(rank=4)
    draws = torch.stack([flat(posterior.sample(seed)) for seed in range(6_000)])
    expected = covariance(posterior, 4, 0.0)
    spread = expected.diagonal().sqrt()
    assert ((draws.mean(0) - flat(posterior.mean)) / spread).abs().max() < 5 / 6_000**0.5
    error = (draws.T.cov() - expected) / spread / spread[:, None]
    assert error.abs().max() < 0.1
    assert torch.equal(flat(posterior.sample(3)), flat(posterior.sample(3)))


def test_start_puts_the_backbone_at_the_mean():
    net, posterior = Net(), source()
    head = net.head.weight.clone()
    net.register_buffer("statistics", torch.zeros(3))
    posterior.buffers["statistics"] = torch.arange(3.0)
    posterior.start(net, "head")
    assert torch.equal(net.statistics, torch.arange(3.0))
    assert torch.equal(net.body.weight, posterior.mean["body.weight"])
    assert torch.equal(net.head.weight, head)


def test_another_network_is_refused(tmp_path):
    posterior = source()
    with pytest.raises(ValueError, match=r"than Net: other shape body.weight \[7, 5\] instead of \[9, 5\]"):
        prior_from_source(posterior, Net(hidden=9), "head")
    other = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Linear(7, 3))
    with pytest.raises(ValueError, match=r"missing 0.bias, 0.weight; unknown body.bias"):
        posterior.start(other, "1")
    with pytest.raises(ValueError, match="rank=7, but the source posterior has 6"):
        prior_from_source(posterior, Net(), "head", rank=7)
    with pytest.raises(FileNotFoundError, match="no source posterior"):
        load_source_posterior(tmp_path / "nothing")
    (tmp_path / "bad.safetensors").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match="damaged"):
        load_source_posterior(tmp_path / "bad.safetensors")
    from deelbo._files import write_tensors

    write_tensors(tmp_path / "other.safetensors", {"a": torch.ones(1)})
    with pytest.raises(ValueError, match="something else than a source posterior"):
        load_source_posterior(tmp_path / "other.safetensors")


class TestReleased:
    def write(self, folder, **changed):
        posterior, net = source(dtype=torch.float32), Net(dtype=torch.float32)
        parts = {
            "mean": flat(posterior.mean),
            "variance": flat(posterior.variance) - 0.01,  # some below zero
            "covmat": flat(posterior.deviations, rows=True),
            "model": net.state_dict(),
        }
        for part, value in {**parts, **changed}.items():
            torch.save(value, folder / f"resnet_{part}.pt")
        return posterior, net

    def test_reading(self, tmp_path):
        posterior, net = self.write(tmp_path)
        net.register_buffer("statistics", torch.zeros(3))
        torch.save({**net.state_dict(), "statistics": torch.arange(3.0)}, tmp_path / "resnet_model.pt")
        found = read_released(tmp_path / "resnet", net, "head")
        assert torch.equal(found.buffers["statistics"], torch.arange(3.0))
        assert torch.equal(flat(found.mean), flat(posterior.mean))
        assert torch.equal(flat(found.deviations, rows=True), flat(posterior.deviations, rows=True))
        assert (flat(found.variance) >= 0).all()
        prior_from_source(found, net, "head")

    def test_columns_instead_of_rows(self, tmp_path):
        posterior, net = self.write(tmp_path)
        self.write(tmp_path, covmat=flat(posterior.deviations, rows=True).T)
        found = read_released(tmp_path / "resnet", net, "head")
        assert torch.equal(flat(found.deviations, rows=True), flat(posterior.deviations, rows=True))

    def test_refusals(self, tmp_path):
        _, net = self.write(tmp_path)
        with pytest.raises(ValueError, match=r"resnet_mean.pt is \[56\], but the backbone of Net has"):
            read_released(tmp_path / "resnet", Net(hidden=9), "head")
        self.write(tmp_path, variance=[1, 2])
        with pytest.raises(ValueError, match="holds a list"):
            read_released(tmp_path / "resnet", net, "head")
        (tmp_path / "resnet_variance.pt").unlink()
        with pytest.raises(FileNotFoundError, match="NAME_covmat"):
            read_released(tmp_path / "resnet", net, "head")

    def test_code_is_never_run(self, tmp_path):
        _, net = self.write(tmp_path)

        class Evil:
            def __reduce__(self):
                return print, ("run",)

        torch.save(Evil(), tmp_path / "resnet_mean.pt")
        with pytest.raises(ValueError, match="safe to load"):
            read_released(tmp_path / "resnet", net, "head")


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
