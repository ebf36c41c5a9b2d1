"""Reading finished runs."""

import json

import pytest
import torch
from torch import nn

import deelbo
from shared.digits import digits, network, quick
from shared.pictures import Small
from shared.regressors import regression_run, regressor


def test_save_and_load(tmp_path):
    result = quick()
    result.save(tmp_path / "run")
    again = deelbo.load(tmp_path / "run", network())
    x = digits()[1][:][0]
    assert torch.equal(again.predict(x), result.predict(x))
    assert torch.equal(again.predict(x, samples=2), result.predict(x, samples=2))
    assert again.history == result.history
    assert (again.settings, again.learning_rate, again.values) == (result.settings, result.learning_rate, result.values)
    with pytest.raises(FileExistsError, match="not empty"):
        result.save(tmp_path / "run")
    with pytest.raises(ValueError, match="another architecture"):
        deelbo.load(tmp_path / "run", nn.Linear(2, 2))
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    (tmp_path / "run" / "run.json").write_text(json.dumps({**run, "schema": 99}))
    with pytest.raises(ValueError, match="schema 99"):
        deelbo.load(tmp_path / "run", network())


@pytest.mark.filterwarnings("ignore:posterior")
def test_a_diagonal_posterior_is_kept(tmp_path):
    options = {"posterior": "diagonal", "optimizer": "adamw", "draws": 2, "learning_rates": (0.01,)}
    result = quick(out=tmp_path / "run", **options)
    again = deelbo.load(tmp_path / "run", network())
    assert isinstance(result.posterior, deelbo.DiagonalPosterior)
    scale = again.posterior.scale
    assert torch.equal(scale, result.posterior.scale)
    assert scale.max() > 1.1 * scale.min()  # they have learned to differ
    assert result.scale == again.scale == pytest.approx(float(scale.detach().double().log().mean().exp()), rel=1e-5)
    x = digits()[1][:50][0]
    assert torch.equal(again.predict(x, samples=3), result.predict(x, samples=3))
    stored = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]
    assert (stored["posterior"], stored["draws"]) == ("diagonal", 2)
    assert result.predict(x, samples=3).sub(result.predict(x)).abs().max() > 1e-3


def test_loaded_predictions_are_those_of_the_run(image_run):
    run = json.loads((image_run / "run" / "run.json").read_text())
    assert deelbo.load(image_run / "run").settings.steps == run["settings"]["steps"]
    plain = Small(3)
    again = deelbo.load(image_run / "run", plain)
    assert again.model is plain
    with pytest.raises(ValueError, match="another architecture"):
        deelbo.load(image_run / "run", Small(4))


def test_a_loaded_regression_predicts_the_same(tmp_path):
    x, result = regression_run()
    result.save(tmp_path / "run")
    again = deelbo.load(tmp_path / "run", regressor())
    for one, other in zip(result.predict(x, samples=2), again.predict(x, samples=2), strict=True):
        torch.testing.assert_close(one, other)
    with pytest.raises(ValueError, match=r"was made in Python: pass it as load\(path, model\)"):
        deelbo.load(tmp_path / "run")
    with pytest.raises(ValueError, match="give predict"):
        result.predict(["a text"])
    assert result.names is None
