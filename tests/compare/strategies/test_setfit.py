"""SetFit as a strategy."""

from dataclasses import replace

import pytest

from deelbo.compare.strategies.setfit import setfit_trial
from deelbo.specs import ModelSpec
from shared.comparisons import strategy_setup


def test_it_is_one_run_of_another_library(tmp_path):
    problem, strategy, _, known = strategy_setup(tmp_path, "setfit")
    problem = replace(problem, model_spec=ModelSpec("hf:encoder"))
    (trial,) = strategy.plan(problem, known).trials
    assert trial.library == trial.identity()["library"] == "setfit"
    assert trial.key != problem.trial().key
    assert trial.describe().startswith("setfit, hf:encoder")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (ModelSpec("timm:resnet18"), "needs a sentence encoder"),
        (ModelSpec("hf:encoder", weights="file"), "weights=file is not possible"),
        (ModelSpec("hf:encoder", pooling="max"), "pooling=max is not possible"),
    ],
)
def test_what_it_would_do_differently_is_refused_before_any_run(tmp_path, model, message):
    problem, _, _, _ = strategy_setup(tmp_path, "setfit")
    with pytest.raises(ValueError, match=message):
        setfit_trial(replace(problem, model_spec=model))


def test_other_targets_and_weights_of_classes_are_refused(tmp_path):
    problem, _, _, _ = strategy_setup(tmp_path, "setfit")
    problem = replace(problem, model_spec=ModelSpec("hf:encoder"))
    for change, message in (({"likelihood": "gaussian"}, "one class"), ({"class_weights": "balanced"}, "not possible")):
        options = replace(problem.options, settings={**problem.options.settings, **change})
        with pytest.raises(ValueError, match=message):
            setfit_trial(replace(problem, options=options))
