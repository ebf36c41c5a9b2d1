"""A finished run: what it predicts, and its folder."""

import json
import math

import pytest
import torch
from PIL import Image
from torch import nn

import deelbo
from deelbo.likelihoods import Gaussian
from deelbo.report import write_report
from deelbo.result import restore_likelihood, versions
from deelbo.run_folder import RunFolder
from shared.digits import digits, network, quick
from shared.pictures import Small
from shared.regressors import regression_run, regressor


def test_predictions():
    result = quick()
    x = digits()[1][:][0]
    p = result.predict(x)
    torch.testing.assert_close(p.sum(1), torch.ones(len(x), dtype=torch.float64))
    assert not torch.equal(result.predict(x, samples=3), p)
    assert torch.equal(result.predict(x, samples=3), result.predict(x, samples=3))
    assert set(result.evaluate(digits()[1])) == {"accuracy", "balanced_accuracy", "nll", "ece"}
    assert not result.model.training


@pytest.mark.parametrize("samples", [0, 2])
def test_the_nll_of_a_confident_network_is_not_capped(samples):
    result, data = quick(), digits()[1]
    with torch.no_grad():
        result.model[-1].weight.mul_(3e4)
        outputs = []
        for sample in range(samples):
            with result.posterior.sample(seed=sample):
                outputs.append(result.model(data[:][0]).double())
        outputs = torch.stack(outputs or [result.model(data[:][0]).double()])
    log_p = outputs.log_softmax(2).gather(2, data[:][1].expand(len(outputs), -1)[..., None])[..., 0]
    expected = float((math.log(len(outputs)) - torch.logsumexp(log_p, 0)).mean())
    assert expected > 500
    found = result.evaluate(data, samples, temperature=1)
    assert found["nll"] == pytest.approx(expected, rel=1e-9)
    assert torch.isfinite(torch.tensor(list(found.values()))).all()


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


def test_infinite_variances_are_valid_json(tmp_path):
    variances = {"backbone": math.inf, "head": 1.0}
    quick(method="map", prior_variances=variances, steps=2, out=tmp_path / "run")

    def refuse(word):
        raise ValueError(word)

    json.loads((tmp_path / "run" / "run.json").read_text(), parse_constant=refuse)
    assert "inf" in write_report(RunFolder(tmp_path / "run")).read_text()
    assert deelbo.load(tmp_path / "run", network()).prior_variances == variances


def test_python_predictions_take_what_people_have(image_run):
    result = deelbo.load(image_run / "run")
    path = image_run / "data" / "test" / "red" / "0.png"
    expected = result.predict([path])
    image = Image.open(path)
    for inputs in (path, str(path), iter([path]), [path.read_bytes()], path.read_bytes(), image, [image]):
        torch.testing.assert_close(result.predict(inputs), expected)
    batch = result.reader.unlabelled([path])
    tensor = batch.collate([batch[0]])[0]
    for inputs in (tensor, tensor.numpy(), list(tensor)):
        torch.testing.assert_close(result.predict(inputs), expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="nothing to predict"):
        result.predict([])
    with pytest.raises(ValueError, match="samples=-1"):
        result.predict(tensor, samples=-1)


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


def test_a_likelihood_takes_values_of_any_number():
    likelihood = Gaussian()
    state = {name: value.tolist() for name, value in likelihood.state_dict().items()}
    wider = {name: [value, value] if isinstance(value, float) else value * 2 for name, value in state.items()}
    restore_likelihood(likelihood, wider)
    assert {name: value.tolist() for name, value in likelihood.state_dict().items()} == wider


def test_versions_of_what_is_installed():
    assert torch.__version__.startswith(versions()["torch"])
    assert versions()["deelbo"] == deelbo.__version__
