"""A comparison that is asked for, before it begins."""

import pytest

from deelbo import events
from deelbo.compare import KnownRecords, Records, make_strategies
from deelbo.jobs.compare import CompareRequest, _check_folder, _kappas, _problems
from deelbo.specs import DataSpec, ModelSpec
from shared.pictures import image_folder, text_table, tiny_bert


def test_the_papers_sweep_of_kappas():
    found = _kappas(("D/N", "sweep", "1"), 10**9)
    assert found == (None, *(10.0**i for i in range(10)))


def test_kappas_in_words():
    assert _kappas(("d/n", "auto", "2", "2.0", "0.5"), 100) == (None, 2.0, 0.5)
    with pytest.raises(ValueError, match="kappas=few, but it is a number, D/N or sweep"):
        _kappas(("1", "few"), 100)


def request(out, **changes):
    fields = {"data_spec": DataSpec("data"), "model_specs": (ModelSpec("timm:resnet50"),), "methods": ("elbo",)}
    return CompareRequest(out=out, **{**fields, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"precision": "half"}, "precision='half'"),
        ({"engine": "spark"}, "engine='spark', but it is one of local, ray"),
        ({"jobs": 0}, "jobs=0, but it must be at least 1"),
        ({"cpus": 0}, "cpus=0, gpus=0: a run needs some CPU"),
        ({"gpus": -1}, "gpus must be 0 or more"),
        ({"device": "gpu"}, "device='gpu'"),
    ],
)
def test_wrong_requests(tmp_path, changes, message):
    request(tmp_path).check()
    with pytest.raises(ValueError, match=message):
        request(tmp_path, **changes).check()


def test_paths_are_written_out_for_workers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("data", "bert", "prior.safetensors", "weights.pth"):
        (tmp_path / name).mkdir()
    models = (ModelSpec("hf:bert", weights="weights.pth"), ModelSpec("timm:resnet50", weights="none"))
    found = request(tmp_path, model_specs=models, priors=("l2-sp", "ptyl:prior.safetensors")).with_absolute_paths()
    assert found.data_spec.data == str(tmp_path / "data")
    assert found.data_spec.data_dir is None
    first, second = found.model_specs
    assert (first.model, first.weights) == (f"hf:{tmp_path / 'bert'}", str(tmp_path / "weights.pth"))
    assert (second.model, second.weights) == ("timm:resnet50", "none")  # a name stays a name
    assert found.priors == ("l2-sp", f"ptyl:{tmp_path / 'prior.safetensors'}")
    named = request(tmp_path, data_spec=DataSpec("cifar10", data_dir="data")).with_absolute_paths()
    assert (named.data_spec.data, named.data_spec.data_dir) == ("cifar10", str(tmp_path / "data"))


def test_folders_of_somebody_else_are_left_alone(tmp_path):
    _check_folder(tmp_path / "new")
    _check_folder(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError, match="is a file"):
        _check_folder(tmp_path / "file")
    with pytest.raises(FileExistsError, match="something else than a comparison"):
        _check_folder(tmp_path)
    (tmp_path / "compare.json").write_text("{}")
    _check_folder(tmp_path)
    (tmp_path / "compare.json").write_text("{")
    with pytest.raises(ValueError, match="damaged"):
        _check_folder(tmp_path)


@pytest.mark.parametrize(("kind", "iterations", "repetitions"), [("image", 35, 5), ("text", 11, 10)])
def test_the_papers_repetitions_of_bayesian_optimisation(tmp_path, kind, iterations, repetitions):
    if kind == "image":
        data, model = image_folder(tmp_path / "data", train=10, test=3), "shared.pictures:small"
    else:
        data, model = tmp_path / "data", f"hf:{tiny_bert(tmp_path / 'bert')}"
        data.mkdir()
        text_table(data / "train.csv", 24)
        text_table(data / "test.csv", 8)
    wanted = request(
        tmp_path / "out",
        data_spec=DataSpec(str(data)),
        model_specs=(ModelSpec(model),),
        methods=("map-bo",),
        options={"bo_runs": "paper"},
    )
    (problem,) = _problems(wanted, events.ignore)
    (strategy,) = make_strategies(problem.options)
    plan = strategy.plan(problem, KnownRecords(Records(tmp_path / "records")))
    assert len(plan.trials) == len({trial.key for trial in plan.trials}) == repetitions  # each from its own start
    assert plan.expected == repetitions * (iterations + 1)
