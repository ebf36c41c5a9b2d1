"""Entries of Case Study A: claims judged by given numbers, and one figure made."""

import json

import pytest

from deelbo.reproduce import ENTRIES, LAPTOP, PAPER, Setup, reproduce
from deelbo.reproduce.entries.rff import _figure_2, _figure_a1, _figure_a2, _figure_a3


def fit(method, near, far=0.5, scale=0.5, noise=0.1, std_near=None):
    error = {"mean_near": near, "std_near": near if std_near is None else std_near, "mean_far": far, "std_far": far}
    return {"method": method, "scale": scale, "noise": noise, "error": error}


def test_claims_of_figure_2():
    fits = [fit("diagEF LA-LML", 0.3), fit("iso ELBO", 0.5, scale=0.99, noise=0.5), fit("iso DE-ELBO (ours)", 0.1)]
    numbers = {"reference": "exact", "fits": [*fits, fit("exact", 0.0)]}
    assert [claim.verdict for claim in _figure_2(numbers)] == ["holds"] * 3
    worse = {**numbers, "fits": [*fits[:2], fit("iso DE-ELBO (ours)", 0.4, std_near=0.1), fit("exact", 0.0)]}
    assert [claim.verdict for claim in _figure_2(worse)] == ["holds", "holds partly", "holds"]
    fits[1] = fit("iso ELBO", 0.5, scale=0.4, noise=0.1)
    assert _figure_2({**numbers, "fits": [*fits, fit("exact", 0.0)]})[0].verdict == "does not hold"


def test_claims_of_the_appendix():
    assert _figure_a1({"fits": [fit("RFF", 0.05, far=0.05)]})[0].verdict == "holds"
    assert _figure_a1({"fits": [fit("RFF", 0.05, far=0.2)]})[0].verdict == "holds partly"
    names = ("lengthscale 1", "DE-ELBO (ours)", "GP")
    regression = [fit(name, near) for name, near in zip(names, (0.3, 0.1, 0.0), strict=True)]
    classes = [{"method": name, "difference_to_gp": d} for name, d in zip(names, (0.1, 0.2, 0.0), strict=True)]
    numbers = {"reference": "GP", "regression": regression, "classification": classes}
    assert _figure_a2(numbers)[0].verdict == "holds partly"
    sweep = {"reference": "exact", "fits": [fit("κ = 1", 0.3), fit("κ = 51.2 = D/N", 0.1), fit("exact", 0.0)]}
    assert _figure_a3(sweep)[0].verdict == "holds"
    sweep["fits"][0] = fit("κ = 1", 0.05)
    assert _figure_a3(sweep)[0].verdict == "does not hold"


def test_they_need_nothing():
    for name in ("fig-2", "fig-a1", "fig-a2", "fig-a3"):
        for scale in (LAPTOP, PAPER):
            assert ENTRIES[name].trials(scale) == []
            assert ENTRIES[name].data(scale) == []


def test_a_seed_that_numpy_does_not_take(tmp_path):
    with pytest.raises(ValueError, match="seed=-1"):
        reproduce("fig-a1", Setup(tmp_path, seed=-1))


@pytest.mark.slow
def test_a_figure_with_all_its_files(tmp_path):
    files = reproduce("fig-a1", Setup(tmp_path / "new"))
    assert [file.name for file in files] == ["fig-a1.png", "fig-a1.svg", "fig-a1.md", "fig-a1.json"]
    assert files[0].read_bytes().startswith(b"\x89PNG")
    assert "<svg" in files[1].read_text()
    found = json.loads(files[3].read_text())
    assert found["number"] == "Fig. A.1"
    assert len(found["fits"]) == 2
    assert f"| {found['fits'][0]['method']} |" in files[2].read_text()
    assert files == reproduce("fig-a1", Setup(tmp_path / "new"))  # it is there already
    with pytest.raises(FileExistsError, match="other data or settings"):
        reproduce("fig-a1", Setup(tmp_path / "new", seed=1))
