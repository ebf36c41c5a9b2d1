"""SetFit (Tunstall et al., 2022): contrastive training of a sentence encoder, then a logistic regression."""

from __future__ import annotations

from deelbo.compare.problem import Options, Problem, Trial
from deelbo.compare.strategies.base import STRATEGIES, OneRun


@STRATEGIES.register("setfit", "the library SetFit, for classes of texts")
def setfit(options: Options) -> list[OneRun]:
    """Return SetFit, with as many steps as all methods have."""
    return [OneRun("setfit", 9, setfit_trial)]


def setfit_trial(problem: Problem) -> Trial:
    """Return the run, after refusing what SetFit would do differently from the other methods.

    Raises:
        ValueError: If the targets are no classes, the model is no sentence encoder, or an option has no meaning for it.
    """
    trial = problem.trial(library="setfit")
    model, settings = trial.model_spec, trial.settings
    if settings.likelihood != "categorical":
        raise ValueError("setfit is for texts with one class each")
    if not (model.model.startswith("hf:") or model.model == "offline:minilm"):
        raise ValueError(f"setfit needs a sentence encoder, hf:NAME or offline:minilm, not {model.model}")
    for name, given in {"weights": model.weights, "pooling": model.pooling}.items():
        if given is not None:
            raise ValueError(f"{name}={given} is not possible with setfit, which loads its encoder itself")
    if settings.class_weights != "none":
        raise ValueError(f"class_weights={settings.class_weights} is not possible with setfit")
    return trial
