"""The command `deelbo compare`."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from deelbo.cli import options
from deelbo.cli.progress import ComparisonProgress
from deelbo.compare import STRATEGIES
from deelbo.errors import Interrupted
from deelbo.jobs.compare import CompareRequest, compare_job
from deelbo.posteriors import POSTERIORS
from deelbo.priors import PRIORS
from deelbo.training.settings import LEARNING_RATES


def compare(
    data: options.Data,
    model: Annotated[
        str,
        typer.Option(
            "--model",
            "--models",
            help="Models as in deelbo finetune, separated by commas; of three and more, the results say whether the "
            "training objective could have chosen among them.",
        ),
    ],
    out: Annotated[
        Path, typer.Option(help="Folder for results.csv, results.md, compare.html and the records of single runs.")
    ],
    methods: Annotated[
        str, typer.Option(help=f"Methods, separated by commas. {STRATEGIES.help()}")
    ] = "de-elbo,probe,lp-ft,default",
    task: options.Task = None,
    multilabel: options.Multilabel = False,
    class_weights: options.ClassWeights = "none",
    train_sizes: Annotated[
        options.Text,
        options.option("Sizes of training subsets, such as 100,1000; the whole training set if not given."),
    ] = None,
    per_class: Annotated[
        options.Text,
        options.option("Numbers of training examples of each class, such as 10,93, as further training subsets."),
    ] = None,
    seeds: Annotated[str, typer.Option(help="Seeds, separated by commas; each chooses a training subset.")] = "1001",
    priors: Annotated[str, typer.Option(help=f"Priors, separated by commas. {PRIORS.help()}")] = "l2-sp",
    kappas: Annotated[
        options.Text,
        options.option(
            "Values of kappa for de-elbo: numbers, D/N, or sweep (ten from 1 to D); D/N if not given.",
            panel=options.EXPERT,
        ),
    ] = None,
    posterior: Annotated[
        str,
        typer.Option(
            rich_help_panel=options.EXPERT,
            help=f"Posteriors of de-elbo and elbo, separated by commas. {POSTERIORS.help()}",
        ),
    ] = "isotropic",
    draws: options.Draws = 1,
    records: Annotated[
        Path | None,
        options.option("Folder for the records of single runs, which comparisons may share; OUT/records if not given."),
    ] = None,
    engine: options.Engine = "local",
    jobs: options.Jobs = 1,
    ray_address: options.RayAddress = None,
    cpus: options.Cpus = 1,
    gpus: options.Gpus = 0,
    learning_rates: Annotated[
        str, typer.Option(help="Candidates for the learning rate, separated by commas, for all methods except map-bo.")
    ] = ",".join(map(str, LEARNING_RATES)),
    lr_search: Annotated[
        str,
        typer.Option(
            rich_help_panel=options.EXPERT, help="How de-elbo and elbo choose the learning rate: race or grid."
        ),
    ] = "race",
    strengths: Annotated[
        str,
        typer.Option(
            rich_help_panel=options.EXPERT,
            help="Candidates for the strengths alpha/N and beta/N of map-grid and la-clml.",
        ),
    ] = "0.01,0.001,0.0001,1e-5,1e-6,0",
    ptyl_variances: Annotated[
        options.Text,
        options.option("Candidates for lambda with the prior ptyl; 1,10,...,1e9 if not given.", panel=options.EXPERT),
    ] = None,
    ptyl_scaling: Annotated[
        str,
        typer.Option(
            rich_help_panel=options.EXPERT,
            help="To what lambda of the prior ptyl refers: mean adds 1/(2 lambda) to the mean loss, as the authors' "
            "code does; sum adds it to the sum over N examples, as the paper says, N times weaker.",
        ),
    ] = "mean",
    retrain: Annotated[
        str,
        typer.Option(
            rich_help_panel=options.EXPERT,
            help="What a search trains again on all examples: best, its result; or all that it could have chosen "
            "earlier, for results over time as in the paper, at twice the runs.",
        ),
    ] = "best",
    bo_iterations: Annotated[
        int | None,
        options.option(
            "Number of runs of a search by map-bo; 35 for images and 11 for texts if not given.", panel=options.EXPERT
        ),
    ] = None,
    bo_runs: Annotated[
        str,
        typer.Option(
            rich_help_panel=options.EXPERT,
            help="Number of repetitions of the search by map-bo, from other random starts, or paper: 5 for images and "
            "10 for texts.",
        ),
    ] = "1",
    clml_samples: Annotated[
        int, typer.Option(rich_help_panel=options.EXPERT, help="Number of draws at each temperature of la-clml.")
    ] = 20,
    temperatures: Annotated[
        str, typer.Option(rich_help_panel=options.EXPERT, help="Candidates for the temperature of la-clml.")
    ] = "1,0.1,0.01,0.001,0.0001",
    steps: options.Steps = None,
    batch_size: options.BatchSize = None,
    optimizer: options.Optimizer = "sgd",
    test_size: Annotated[int | None, options.option("Number of test examples to use; all if not given.")] = None,
    test_fraction: options.TestFraction = None,
    head: options.Head = None,
    weights: options.Weights = None,
    image_size: options.ImageSize = None,
    flip: options.Flip = True,
    max_length: options.MaxLength = None,
    pooling: options.Pooling = None,
    resize: options.Resize = "shorter-side",
    normalize: options.Normalize = "network",
    text_column: options.TextColumn = "text",
    label_column: options.LabelColumn = "label",
    data_dir: options.DataDir = None,
    skip_bad: options.SkipBad = False,
    device: options.Device = None,
    precision: options.Precision = "no",
    quiet: options.Quiet = False,
) -> None:
    """Compare methods on DATA by test results and time; finished runs are never repeated."""
    arguments = locals()
    limits = {
        "bo_iterations": bo_iterations,
        "ptyl_variances": None if ptyl_variances is None else options.numbers("ptyl_variances", ptyl_variances),
    }
    request = CompareRequest(
        data_spec=options.data_spec({**arguments, "per_class": None}),
        model_specs=tuple(replace(options.model_spec(arguments), model=name) for name in options.words("model", model)),
        out=out,
        records=records,
        methods=options.words("methods", methods),
        priors=options.words("priors", priors),
        train_sizes=(None,) if train_sizes is None else options.numbers("train_sizes", train_sizes, int),
        per_class=() if per_class is None else options.numbers("per_class", per_class, int),
        seeds=options.numbers("seeds", seeds, int),
        kappas=None if kappas is None else options.words("kappas", kappas),
        test_size=test_size,
        precision=precision,
        settings={
            name: arguments[name]
            for name in ("class_weights", "steps", "batch_size", "optimizer")
            if arguments[name] is not None
        },
        options={
            "learning_rates": options.numbers("learning_rates", learning_rates),
            "lr_search": lr_search,
            "strengths": options.numbers("strengths", strengths),
            "ptyl_scaling": ptyl_scaling,
            "retrain": retrain,
            "posteriors": options.words("posterior", posterior),
            "draws": draws,
            "bo_runs": bo_runs if bo_runs == "paper" else options.number("bo_runs", bo_runs, int),
            "clml_samples": clml_samples,
            "temperatures": options.numbers("temperatures", temperatures),
            **{name: value for name, value in limits.items() if value is not None},
        },
        engine=engine,
        jobs=jobs,
        ray_address=ray_address,
        cpus=cpus,
        gpus=gpus,
        device=device,
    )
    with ComparisonProgress(quiet) as progress:
        try:
            page = compare_job(request, progress)
        except KeyboardInterrupt:
            again = shlex.join(["deelbo", *sys.argv[1:]])
            raise Interrupted(
                f"interrupted; finished runs are kept, and the same command continues the comparison: {again}"
            ) from None
    if not quiet:
        console = Console(soft_wrap=True, highlight=False, markup=False)
        console.print((out / "results.md").read_text())
        console.print(f"page: {page}")
