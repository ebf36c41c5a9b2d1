"""The probe: a classifier on the features of the frozen network, which is enough for many tasks and takes seconds."""

from __future__ import annotations

import math

from deelbo.methods.point import MaximumAPosteriori
from deelbo.training.method import METHODS, MethodInputs


@METHODS.register("probe", "a classifier on frozen features, by logistic or ridge regression with cross-validation")
class LinearProbe(MaximumAPosteriori):
    """The network as it is, with the classifier of `training/probe.py`; its objective is the log-likelihood.

    Args:
        inputs: Network, prior, likelihood and number of examples.
    """

    name = "probe"
    own_settings = ()
    needed_settings = ()
    trains = False

    def __init__(self, inputs: MethodInputs) -> None:
        super().__init__(inputs, dict.fromkeys(inputs.prior.variances, math.inf))

    @classmethod
    def make(cls, inputs: MethodInputs) -> LinearProbe:
        """Return the method."""
        return cls(inputs)
