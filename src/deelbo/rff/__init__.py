"""Random Fourier features with a learned lengthscale: a layer, and estimators whose time is linear in N."""

from deelbo.rff.classifier import RFFClassifier
from deelbo.rff.features import RandomFourierFeatures
from deelbo.rff.regressor import RFFRegressor

__all__ = ["RFFClassifier", "RFFRegressor", "RandomFourierFeatures"]
