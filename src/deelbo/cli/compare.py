"""`deelbo compare`."""

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
from deelbo.compare.engines import ENGINES
from deelbo.errors import Interrupted
from deelbo.jobs.compare import CompareRequest, compare_job
from deelbo.priors import PRIORS


def compare(
    data: options.Data,
    model: Annotated[str, typer.Option(help="Models as in deelbo finetune, with commas between them.")],
    out: Annotated[Path, typer.Option(help="Folder for results.csv, results.md, compare.html and the records.")],
    methods: Annotated[str, typer.Option(help=f"Methods with commas between them. {STRATEGIES.help()}")] = ",".join(
        STRATEGIES.names()
    ),
    task: options.Task = None,
    multilabel: options.Multilabel = False,
    class_weights: options.ClassWeights = "none",
    train_sizes: Annotated[
        options.Text, options.option("Sizes of training subsets by class, such as 100,1000; everything if not given.")
    ] = None,
    seeds: Annotated[str, typer.Option(help="Seeds with commas between them; each has a training subset.")] = "1001",
    priors: Annotated[str, typer.Option(help=f"Priors with commas between them. {PRIORS.help()}")] = "l2-sp",
    kappas: Annotated[
        options.Text, options.option("Emphases of the data for de-elbo: numbers, D/N, or sweep for ten from 1 to D.")
    ] = None,
    records: Annotated[
        Path | None, options.option("Folder where single runs are kept, to be shared; OUT/records if not given.")
    ] = None,
    engine: Annotated[str, typer.Option(help=f"Where runs are made. {ENGINES.help()}")] = "local",
    jobs: Annotated[int, typer.Option(help="Number of runs at a time on this machine, which share its threads.")] = 1,
    ray_address: Annotated[
        options.Text, options.option("Address of a running Ray cluster; one is started here if not given.")
    ] = None,
    cpus: Annotated[float, typer.Option(help="Number of cores for each run on Ray.")] = 1,
    gpus: Annotated[float, typer.Option(help="Number of GPUs for each run on Ray.")] = 0,
    learning_rates: Annotated[
        str, typer.Option(help="Candidates for the learning rate of all methods.")
    ] = "0.1,0.01,0.001,0.0001",
    lr_search: Annotated[
        str, typer.Option(help="How de-elbo and elbo choose the learning rate: race or grid.")
    ] = "race",
    strengths: Annotated[
        str, typer.Option(help="Candidates for the strengths alpha/N and beta/N of the grids.")
    ] = "0.01,0.001,0.0001,1e-5,1e-6,0",
    ptyl_variances: Annotated[
        options.Text, options.option("Candidates for lambda of the grids with prior ptyl; 1,10,...,1e9 if not given.")
    ] = None,
    bo_iterations: Annotated[
        int | None, options.option("Number of runs of one map-bo; 35 for images, 11 for texts.")
    ] = None,
    bo_runs: Annotated[int, typer.Option(help="Number of repetitions of map-bo.")] = 1,
    clml_samples: Annotated[int, typer.Option(help="Number of draws at each temperature of la-clml.")] = 20,
    temperatures: Annotated[
        str, typer.Option(help="Candidates for the temperature of la-clml.")
    ] = "1,0.1,0.01,0.001,0.0001",
    steps: options.Steps = None,
    batch_size: options.BatchSize = None,
    test_size: Annotated[int | None, options.option("Number of test examples to use; all if not given.")] = None,
    test_fraction: options.TestFraction = None,
    head: options.Head = None,
    weights: options.Weights = None,
    image_size: options.ImageSize = None,
    flip: options.Flip = True,
    max_length: options.MaxLength = None,
    text_column: options.TextColumn = "text",
    label_column: options.LabelColumn = "label",
    data_dir: options.DataDir = None,
    skip_bad: options.SkipBad = False,
    device: options.Device = None,
    precision: options.Precision = "no",
    quiet: options.Quiet = False,
) -> None:
    """Compare methods on DATA: test results and time; finished runs are never repeated."""
    arguments = locals()
    limits = {
        "bo_iterations": bo_iterations,
        "ptyl_variances": None if ptyl_variances is None else options.numbers("ptyl_variances", ptyl_variances),
    }
    request = CompareRequest(
        data_spec=options.data_spec(arguments),
        model_specs=tuple(replace(options.model_spec(arguments), model=name) for name in options.words("model", model)),
        out=out,
        records=records,
        methods=options.words("methods", methods),
        priors=options.words("priors", priors),
        train_sizes=(None,) if train_sizes is None else options.numbers("train_sizes", train_sizes, int),
        seeds=options.numbers("seeds", seeds, int),
        kappas=None if kappas is None else options.words("kappas", kappas),
        test_size=test_size,
        precision=precision,
        settings={
            name: arguments[name] for name in ("class_weights", "steps", "batch_size") if arguments[name] is not None
        },
        options={
            "learning_rates": options.numbers("learning_rates", learning_rates),
            "lr_search": lr_search,
            "strengths": options.numbers("strengths", strengths),
            "bo_runs": bo_runs,
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
            raise Interrupted(f"interrupted; finished runs are kept, and the same command continues: {again}") from None
    if not quiet:
        console = Console(soft_wrap=True, highlight=False, markup=False)
        console.print((out / "results.md").read_text())
        console.print(f"page: {page}")
