"""A method on a small network in double precision, and what it may ask about the training examples."""

from types import SimpleNamespace

import torch
import torch.nn.functional as F

from deelbo.likelihoods import Categorical
from deelbo.priors import l2_sp
from deelbo.training.method import METHODS, MethodInputs
from deelbo.training.settings import Settings
from shared.cases import Net, batch, copies


class MethodCase:
    """A method whose network has moved away from where its prior is centred.

    Args:
        name: Name of the method.
        settings: Of the run.
    """

    def __init__(self, name, **settings):
        torch.manual_seed(0)
        self.net, (self.x, self.y) = Net(), batch()
        self.prior = l2_sp(self.net, head="head")
        self.centre = {n: torch.zeros_like(p) if n.startswith("head") else p for n, p in copies(self.net).items()}
        with torch.no_grad():
            for parameter in self.net.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        self.inputs = MethodInputs(self.net, self.prior, Categorical(), 12, 3, Settings(method=name, **settings))
        self.method = METHODS[name].make(self.inputs)

    def loss(self, weights=None):
        """Return the mean negative log-likelihood, with other weights than the network's own if some are given."""
        output = self.net(self.x) if weights is None else torch.func.functional_call(self.net, weights, self.x)
        return F.cross_entropy(output, self.y)

    def group_of(self, name):
        return "head" if name.startswith("head") else "backbone"


def view(log_likelihood):
    """Return what a method sees of training examples whose log-likelihood is a function of nothing."""
    return SimpleNamespace(log_likelihood=lambda: torch.tensor(log_likelihood(), dtype=torch.float64), share=1.0)
