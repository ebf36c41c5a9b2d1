"""Random-Fourier-feature models that learn their lengthscale: a layer, and estimators linear in N."""

from deelbo.rff.classifier import RFFClassifier
from deelbo.rff.features import RandomFourierFeatures
from deelbo.rff.regressor import RFFRegressor

__all__ = ["RFFClassifier", "RFFRegressor", "RandomFourierFeatures"]
