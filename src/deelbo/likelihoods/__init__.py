"""Likelihoods p(y | network output) of classes, numbers and several labels.

Your own training loop needs none of them: any mean negative log-likelihood works there.
"""

from deelbo.likelihoods.base import (
    LIKELIHOODS,
    Likelihood,
    PredictedRow,
    TrainingScore,
    likelihood_of_task,
    recognise_likelihood,
)
from deelbo.likelihoods.bernoulli import Bernoulli
from deelbo.likelihoods.categorical import Categorical
from deelbo.likelihoods.gaussian import Gaussian, GaussianPrediction

__all__ = [
    "LIKELIHOODS",
    "Bernoulli",
    "Categorical",
    "Gaussian",
    "GaussianPrediction",
    "Likelihood",
    "PredictedRow",
    "TrainingScore",
    "likelihood_of_task",
    "recognise_likelihood",
]
