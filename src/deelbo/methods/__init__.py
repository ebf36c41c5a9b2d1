"""Methods of regularisation, which share one training loop. A new method is a new file in this folder."""

from deelbo.methods.laplace import LaplaceMarginalLikelihood
from deelbo.methods.point import MaximumAPosteriori
from deelbo.methods.probe import LinearProbe
from deelbo.methods.variational import DataEmphasized, EvidenceLowerBound

__all__ = ["DataEmphasized", "EvidenceLowerBound", "LaplaceMarginalLikelihood", "LinearProbe", "MaximumAPosteriori"]
