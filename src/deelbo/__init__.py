"""deelbo: the strength of the regularisation is learned while the network trains, by a data-emphasized ELBO.

In your own training loop
    IsotropicPosterior, DiagonalPosterior   q(theta) over every trainable weight
    priors.l2_zero, l2_sp, ptyl, per_layer  p(theta), with variances learned in closed form
    likelihoods.Categorical, Gaussian, Bernoulli  p(y | theta): classes, numbers, several labels
    DataEmphasizedELBO                      the objective: backward(), attach(), estimate()

In one call
    finetune, load                          train a network on a dataset; read a trained run from its folder
    Result, Settings, AllDivergedError      what `finetune` returns, takes and raises
    swag.collect, load_source_posterior     the posterior of a source task, for the prior PTYL
    laplace.laplace_posterior               Laplace's approximation with a diagonal Fisher, and its evidence
    the command `deelbo`                    the same from a folder of images or a table of texts

Registries, each a mapping from names to entries; a new entry is a new file
    training.method.METHODS, priors.PRIORS, likelihoods.LIKELIHOODS, optimizers.OPTIMIZERS, metrics.METRICS,
    models.MODEL_SOURCES, compare.STRATEGIES

Packages to import by themselves
    deelbo.compare                          comparisons of methods: what `deelbo compare` does
    deelbo.rff                              random Fourier features that learn their lengthscale
"""

from deelbo import laplace, likelihoods, priors, swag
from deelbo.errors import AllDivergedError
from deelbo.finetuning import finetune
from deelbo.loading import load
from deelbo.objective import DataEmphasizedELBO
from deelbo.posteriors import DiagonalPosterior, IsotropicPosterior
from deelbo.result import Result
from deelbo.training.settings import Settings

__version__ = "0.1.0"

__all__ = [
    "AllDivergedError",
    "DataEmphasizedELBO",
    "DiagonalPosterior",
    "IsotropicPosterior",
    "Result",
    "Settings",
    "__version__",
    "finetune",
    "laplace",
    "likelihoods",
    "load",
    "priors",
    "swag",
]
