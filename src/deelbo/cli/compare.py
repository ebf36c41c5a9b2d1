"""`deelbo compare`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from deelbo.cli import options
from deelbo.cli.progress import ComparisonProgress, Interrupted
from deelbo.compare import names
from deelbo.compare_job import CompareRequest, compare_job
from deelbo.job import Job

METHODS = ",".join(names())


def compare(
    data: Annotated[str, typer.Argument(help="Folder of images, table of texts, or a name such as cifar10.")],
    model: Annotated[str, typer.Option(help="As in deelbo finetune; several with commas between them.")],
    out: Annotated[Path, typer.Option(help="Folder for results.csv, results.md, compare.html and the records.")],
    methods: Annotated[str, typer.Option(help="With commas between them.")] = METHODS,
    train_sizes: Annotated[
        options.Text, options.option("Training subsets by class, such as 100,1000; everything if not given.")
    ] = None,
    seeds: Annotated[str, typer.Option(help="A training subset for each.")] = "1001",
    priors: Annotated[str, typer.Option(help="l2-sp, l2-zero, ptyl:FILE.")] = "l2-sp",
    kappas: Annotated[options.Text, options.option("Of de-elbo: numbers, D/N, or sweep for ten from 1 to D.")] = None,
    records: Annotated[
        Path | None, options.option("Where single runs are kept, to be shared; OUT/records if not given.")
    ] = None,
    engine: Annotated[str, typer.Option(help="local or ray.")] = "local",
    jobs: Annotated[int, typer.Option(help="Of local: runs at a time, which share the threads.")] = 1,
    ray_address: Annotated[
        options.Text, options.option("Of ray: a running cluster's; its own on this machine if not given.")
    ] = None,
    cpus: Annotated[float, typer.Option(help="Of ray: for each run.")] = 1,
    gpus: Annotated[float, typer.Option(help="Of ray: for each run.")] = 0,
    learning_rates: Annotated[str, typer.Option(help="Candidates of all methods.")] = "0.1,0.01,0.001,0.0001",
    lr_search: Annotated[str, typer.Option(help="Of de-elbo and elbo: race or grid.")] = "race",
    strengths: Annotated[str, typer.Option(help="Of the grids: alpha/N and beta/N.")] = "0.01,0.001,0.0001,1e-5,1e-6,0",
    ptyl_variances: Annotated[
        options.Text, options.option("Of the grids with ptyl: lambda; 1,10,...,1e9 if not given.")
    ] = None,
    bo_iterations: Annotated[int | None, options.option("Of map-bo; 35 for images, 11 for texts.")] = None,
    bo_runs: Annotated[int, typer.Option(help="Of map-bo: repetitions.")] = 1,
    clml_samples: Annotated[int, typer.Option(help="Of la-clml: draws at each temperature.")] = 20,
    temperatures: Annotated[str, typer.Option(help="Of la-clml.")] = "1,0.1,0.01,0.001,0.0001",
    steps: options.Steps = None,
    batch_size: options.BatchSize = None,
    test_size: Annotated[int | None, options.option("Test on a subset by class.")] = None,
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
    """Compare methods on DATA: accuracy, NLL, ECE and time; finished runs are never repeated."""
    models = _words(model)
    job = Job(
        data, models[0], data_dir, text_column, label_column, None, test_fraction, weights, head, image_size, flip,
        max_length, skip_bad,
    )  # fmt: skip
    request = CompareRequest(
        job=job,
        out=out,
        records=records,
        methods=tuple(_words(methods)),
        models=tuple(models),
        priors=tuple(_words(priors)),
        train_sizes=(None,) if train_sizes is None else options.numbers("--train-sizes", train_sizes, int),
        seeds=options.numbers("--seeds", seeds, int),
        kappas=None if kappas is None else tuple(_words(kappas)),
        test_size=test_size,
        precision=precision,
        settings={name: value for name, value in (("steps", steps), ("batch_size", batch_size)) if value is not None},
        options={
            "learning_rates": options.numbers("--learning-rates", learning_rates),
            "lr_search": lr_search,
            "strengths": options.numbers("--strengths", strengths),
            "bo_runs": bo_runs,
            "clml_samples": clml_samples,
            "temperatures": options.numbers("--temperatures", temperatures),
            **({} if bo_iterations is None else {"bo_iterations": bo_iterations}),
            **(
                {}
                if ptyl_variances is None
                else {"ptyl_variances": options.numbers("--ptyl-variances", ptyl_variances)}
            ),
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
            raise Interrupted(f"interrupted; finished runs are kept, and the same command goes on: {again}") from None
    if not quiet:
        console = Console(soft_wrap=True, highlight=False, markup=False)
        console.print((out / "results.md").read_text())
        console.print(f"page: {page}")


def _words(text: str) -> list[str]:
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise ValueError(f"{text!r}: words with commas between them")
    return words
