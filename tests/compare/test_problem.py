import dataclasses
import json
import math

import pytest
import safetensors.torch

from deelbo.compare import make_problems
from deelbo.compare.problem import Options, model_name
from deelbo.compare.strategies.map_grid import MAPGrid
from deelbo.priors import short_name
from deelbo.specs import DataSpec, ModelSpec
from shared.comparisons import small_options, small_problems
from shared.pictures import image_folder, text_table, tiny_bert


def test_strengths_become_variances_of_the_set_that_is_trained_on(tmp_path):
    (problem,) = small_problems(tmp_path)
    assert (problem.number, problem.held_out) == (18, 4)
    part = problem.point((0.01, 0.0), 0.1, whole=False)
    whole = problem.point((0.01, 0.0), 0.1, whole=True)
    # The loss is mean NLL + (alpha/N)/2 |w - mu|^2 = mean NLL - log p(w)/N with variance 1/alpha.
    assert part.settings.prior_variances == pytest.approx({"backbone": 1 / (0.01 * 14), "head": math.inf})
    assert whole.settings.prior_variances == pytest.approx({"backbone": 1 / (0.01 * 18), "head": math.inf})
    assert (part.held_out, whole.held_out) == (True, False)


@pytest.mark.parametrize(("prior", "cells"), [("l2-zero", 24), ("l2-sp", 144), ("ptyl:FILE", 240)])
def test_the_papers_grids(tmp_path, prior, cells):
    options = Options(methods=("map-grid",), learning_rates=(0.1, 0.01, 0.001, 0.0001))
    (problem,) = small_problems(tmp_path, options)
    problem = dataclasses.replace(problem, prior=prior)
    found = MAPGrid().cells(problem)
    assert len(found) == cells
    assert len({json.dumps(cell) for cell in found}) == cells
    if prior == "l2-zero":
        variances = [problem.point(values, rate, whole=True).settings.prior_variances for values, rate in found]
        assert all(v["backbone"] == v["head"] for v in variances)


@pytest.mark.parametrize("scaling", [None, "mean", "sum"])
@pytest.mark.parametrize("whole", [True, False])
def test_both_scalings_of_ptyls_lambda(tmp_path, scaling, whole):
    """MAP minimises mean NLL + d^T Sigma^-1 d / (2 lambda), by default, or mean NLL + d^T Sigma^-1 d / (2 lambda N)."""
    options = small_options(methods=("map-grid",), **({} if scaling is None else {"ptyl_scaling": scaling}))
    (problem,) = small_problems(tmp_path, options)
    problem = dataclasses.replace(problem, prior="ptyl:FILE")
    variance = problem.point((100.0, 0.01), 0.1, whole).settings.prior_variances["backbone"]
    number, lengths = problem.number if whole else problem.number - problem.held_out, 7.0
    penalty = lengths / (2 * variance) / number  # what `MaximumAPosteriori` adds to the mean loss: -log p(theta) / N
    assert penalty == pytest.approx(lengths / (2 * 100.0 * (number if scaling == "sum" else 1)))


def test_a_key_is_the_content_not_the_place(tmp_path):
    (problem,) = small_problems(tmp_path / "a")
    (same,) = small_problems(tmp_path / "b")
    assert problem.trial().key == same.trial().key
    keys = {problem.trial().key}
    for other in (
        problem.trial(seed=5),
        problem.trial(method="elbo"),
        problem.point((0.1, 0.1), 0.1, whole=True),
        problem.point((0.1, 0.1), 0.1, whole=False),
        problem.point((0.1, 0.1), 0.1, whole=False, clml=True),
        dataclasses.replace(problem, test_size=3).trial(),
        dataclasses.replace(problem, precision="bf16").trial(),
    ):
        keys.add(other.key)
    assert len(keys) == 8
    image_folder(tmp_path / "c" / "data", train=10, test=3, colours=("blue", "red"))
    (changed,) = small_problems(tmp_path / "c")
    assert changed.trial().key not in keys


def test_as_many_examples_of_each_class(tmp_path):
    problems = small_problems(tmp_path, train_sizes=[18], per_class=[5, 10])
    assert [problem.number for problem in problems] == [18, 15, 30]
    assert [problem.data_spec.per_class for problem in problems] == [None, 5, None]  # ten of each are all
    assert "per_class" not in problems[0].trial().identity()
    assert problems[1].trial().identity()["per_class"] == 5
    assert "5 a class" in problems[1].trial().describe()
    (alone,) = small_problems(tmp_path, train_sizes=[None], per_class=[5])
    assert alone.trial().key == problems[1].trial().key


def test_preprocessing_makes_other_runs(tmp_path):
    data = DataSpec(str(image_folder(tmp_path / "data", train=10, test=3)))
    specs = [ModelSpec("shared.pictures:small", image_size=28, resize=way) for way in ("shorter-side", "square")]
    plain, squashed = (make_problems(data, [spec], small_options())[0] for spec in specs)
    assert plain.trial().key != squashed.trial().key


def test_a_key_is_the_networks_content(tmp_path):
    text_table(tmp_path / "train.csv", 24)
    text_table(tmp_path / "test.csv", 8)
    keys = []
    for name, change in (("a", 0.0), ("b", 0.0), ("b", 1.0)):
        folder = tiny_bert(tmp_path / name)
        weights = safetensors.torch.load_file(folder / "model.safetensors")
        next(iter(weights.values()))[0] += change
        safetensors.torch.save_file(weights, folder / "model.safetensors", {"format": "pt"})
        (problem,) = make_problems(DataSpec(str(tmp_path)), [ModelSpec(f"hf:{folder}")], small_options())
        keys.append(problem.trial().key)
    assert keys[0] == keys[1] != keys[2]


def test_two_files_of_a_prior_are_two_lines():
    assert short_name("ptyl:/far/away/first.safetensors") == "ptyl:first"
    assert model_name("hf:/far/away/bert") == "hf:bert"
    assert model_name("timm:resnet50") == "timm:resnet50"


def test_wrong_options_are_refused(tmp_path):
    for changes in (
        {"strengths": (-1.0,)},
        {"strengths": ()},
        {"bo_runs": 0},
        {"temperatures": (0.0,)},
        {"lr_search": "x"},
        {"learning_rates": (0.1, 0.1)},
        {"ptyl_variances": (0.0,)},
        {"ptyl_scaling": "x"},
        {"retrain": "x"},
        {"draws": 0},
        {"posteriors": ("isotropic", "isotropic")},
        {"kappas": (0.0,)},
    ):
        with pytest.raises(ValueError, match=next(iter(changes))):
            small_options(**changes)
    with pytest.raises(ValueError, match="single training example"):
        small_problems(tmp_path, train_sizes=[3])
    with pytest.raises(ValueError, match="100"):
        small_problems(tmp_path, train_sizes=[100])
