import json

import pytest

from deelbo.reproduce import FIGURES, reproduce

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", FIGURES)
def test_figures(name, tmp_path):
    files = reproduce(name, tmp_path / "new", announce=lambda text: None)
    assert [file.suffix for file in files] == [".png", ".svg", ".json"]
    assert files[0].read_bytes().startswith(b"\x89PNG")
    assert "<svg" in files[1].read_text()
    numbers = json.loads(files[2].read_text())
    if name == "fig-2":
        by = {row["method"]: row for row in numbers["fits"]}
        assert by["iso ELBO"]["scale"] > 0.98
        de_elbo, elbo = by["iso DE-ELBO (ours)"]["error"], by["iso ELBO"]["error"]
        assert de_elbo["mean_near"] < 0.1 < elbo["mean_near"]
        assert de_elbo["std_near"] == min(row["error"]["std_near"] for row in numbers["fits"][:-1])
        assert de_elbo["std_far"] > 0.5  # underestimated, as the paper says
    if name == "fig-a1":
        assert max(numbers["fits"][0]["error"].values()) < 0.35
        assert numbers["fits"][-1]["method"] == numbers["reference"]
    if name == "fig-a2":
        ours = {row["method"]: row["difference_to_gp"] for row in numbers["classification"]}
        assert ours["RFF (learned), DE-ELBO (ours)"] < ours["RFF (lengthscale 20), MAP + grid search"]
    if name == "fig-a3":
        fits = {row["method"]: row for row in numbers["fits"]}
        assert fits["κ = 1"]["noise"] > 0.3 > 0.15 > fits["κ = 51.2 = D/N"]["noise"] > 0.085
        assert fits["κ = 1024"]["noise"] < 0.08  # below that of the data, 0.1
    with pytest.raises(FileExistsError, match="exists already"):
        reproduce(name, tmp_path / "new")
