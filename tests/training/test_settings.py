"""The settings of a run."""

import json
import math

import pytest

from deelbo.training.settings import Settings, settings_for
from shared.digits import quick


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "elbow"}, "method='elbow', but it is one of de-elbo, elbo, la-lml, map"),
        ({"learning_rates": ()}, "learning_rates"),
        ({"learning_rates": (0.1, 0.1)}, "twice"),
        ({"learning_rates": (-1.0,)}, "positive"),
        ({"steps": 0}, "steps"),
        ({"method": "elbo", "kappa": 3.0}, "kappa=... is only for"),
        ({"prior_variances": {"head": 1.0}}, "prior_variances"),
        ({"method": "map"}, "prior_variances"),
        ({"kappa": 0.0}, "kappa=0.0 is out of range"),
        ({"kappa": math.nan}, "kappa=nan"),
        ({"momentum": 2.0}, "momentum"),
        ({"clip": -1.0}, "clip"),
        ({"init_scale": 0.0}, "init_scale"),
        ({"seed": -1}, "seed"),
    ],
)
def test_wrong_settings_are_refused_before_work(options, message):
    with pytest.raises(ValueError, match=message):
        quick(**options)


def test_one_learning_rate_may_be_a_number():
    assert Settings(learning_rates=0.1).learning_rates == (0.1,)
    assert Settings(learning_rates=[1, 0.5]).learning_rates == (1.0, 0.5)


def test_settings_of_other_methods_are_refused_with_their_owner():
    with pytest.raises(ValueError, match=r"kappa=\.\.\. is only for method=de-elbo, but method='la-lml'"):
        Settings(method="la-lml", kappa=2.0)
    with pytest.raises(ValueError, match=r"prior_variances=\.\.\. is only for method=map, but method='de-elbo'"):
        Settings(prior_variances={"head": 1.0})
    with pytest.raises(ValueError, match="method='map' needs prior_variances"):
        Settings(method="map")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prior": "l2"}, "prior='l2', but it is one of adapters, l2-sp"),
        ({"prior": "l2-sp:file"}, "takes no file"),
        ({"prior": "ptyl"}, "needs a file"),
        ({"optimizer": "adam"}, "optimizer='adam', but it is one of adamw, sgd"),
        ({"likelihood": "poisson"}, "likelihood='poisson', but it is one of bernoulli"),
        ({"lr_search": "random"}, "lr_search='random', but it is one of race, grid"),
        ({"class_weights": "some"}, "class_weights"),
        ({"batch_size": 0}, "batch_size=0, but it must be at least 1"),
        ({"samples": 0}, "samples=0, but it must be at least 1"),
        ({"rank": -1}, "rank=-1 is out of range"),
        ({"draws": 0}, "draws=0, but it must be at least 1"),
        ({"posterior": "full"}, "posterior='full', but it is one of diagonal, isotropic"),
        ({"method": "la-lml", "draws": 2}, "draws=2 is only for method=de-elbo or elbo, which have a posterior"),
        ({"method": "probe", "posterior": "diagonal"}, "posterior=diagonal is only for method=de-elbo or elbo"),
        ({"diagonal": math.inf}, "diagonal=inf is out of range"),
        ({"method": "map", "prior_variances": {"head": 0.0}}, "prior_variances"),
    ],
)
def test_choices_and_ranges(options, message):
    with pytest.raises(ValueError, match=message):
        Settings(**options)


def test_plain_values_come_back_from_json():
    settings = Settings(method="map", prior_variances={"backbone": math.inf, "head": 2.0}, learning_rates=(0.1, 0.01))
    stored = json.loads(json.dumps(settings.as_dict(), allow_nan=False))
    assert stored["prior_variances"] == {"backbone": "inf", "head": 2.0}
    assert Settings(**stored) == settings
    assert settings.differences(stored) == []


def test_differences_name_old_and_new_values():
    settings = Settings(steps=5)
    stored = {**Settings(steps=7).as_dict(), "gone": 1}
    assert settings.differences(stored) == ["steps: 7 -> 5", "gone: 1 -> None"]


def test_a_run_from_before_a_setting_existed_had_its_only_value():
    older = {name: value for name, value in Settings().as_dict().items() if name not in ("posterior", "draws")}
    assert Settings().differences(older) == []
    assert Settings(draws=2).differences(older) == ["draws: 1 -> 2"]


def test_lengths_follow_the_kind_of_the_data():
    assert (settings_for("image", "categorical", {}).steps, settings_for("image", "categorical", {}).batch_size) == (
        6000,
        128,
    )
    text = settings_for("text", "gaussian", {"batch_size": 7})
    assert (text.steps, text.batch_size, text.likelihood) == (12000, 7, "gaussian")
    assert settings_for("sound", "categorical", {"likelihood": "bernoulli"}).likelihood == "bernoulli"
    assert settings_for("sound", "categorical", {}).steps == 6000
    with pytest.raises(TypeError, match="stepz"):
        settings_for("image", "categorical", {"stepz": 1})


def test_the_prior_has_the_settings_rank_and_diagonal():
    recipe = Settings(prior="ptyl:some.safetensors", rank=3, diagonal=0.5).prior_recipe()
    assert (recipe.name, recipe.file, recipe.rank, recipe.diagonal) == ("ptyl", "some.safetensors", 3, 0.5)
