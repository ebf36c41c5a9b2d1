import pytest
import torch

from deelbo.priors import load_source_posterior, prior_from_source
from shared.cases import Net
from shared.sources import covariance, flat, source


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
