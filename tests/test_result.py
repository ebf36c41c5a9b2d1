"""A finished run: what it predicts, and its folder."""

import json
import math

import pytest
import torch
from PIL import Image

import deelbo
from deelbo.report import write_report
from deelbo.result import versions
from deelbo.run_folder import RunFolder
from shared.digits import digits, network, quick


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


def test_versions_of_what_is_installed():
    assert torch.__version__.startswith(versions()["torch"])
    assert versions()["deelbo"] == deelbo.__version__
