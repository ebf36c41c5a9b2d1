"""deelbo: the strength of the regularisation is learned while the network trains, by a data-emphasized ELBO.

In your own training loop
    IsotropicPosterior, DiagonalPosterior   q(theta) over every trainable weight
    priors.l2_zero, l2_sp, ptyl, per_layer  p(theta), with variances learned in closed form
    likelihoods.Categorical, Gaussian       p(y | theta)
    DataEmphasizedELBO                      the objective: backward(), attach(), estimate()

In one call
    finetune, load                          a network and a dataset to a classifier, and back from its folder
    swag.collect, load_source               the posterior of a source task, for the prior PTYL
    the command `deelbo`                    the same from a folder of images or a table of texts

Models of their own
    deelbo.rff                              random Fourier features that learn their lengthscale
"""

from deelbo import likelihoods, priors, swag
from deelbo.finetuning import finetune
from deelbo.objective import DataEmphasizedELBO
from deelbo.posteriors import DiagonalPosterior, IsotropicPosterior
from deelbo.result import load

__version__ = "0.1.0"

__all__ = [
    "DataEmphasizedELBO",
    "DiagonalPosterior",
    "IsotropicPosterior",
    "__version__",
    "finetune",
    "likelihoods",
    "load",
    "priors",
    "swag",
]
