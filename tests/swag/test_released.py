"""Files as the paper "Pre-Train Your Loss" released them."""

import pytest
import torch

from deelbo.priors import prior_from_source
from deelbo.swag import read_released
from shared.cases import Net
from shared.sources import flat, source


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
