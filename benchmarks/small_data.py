"""deelbo's default run beside what people use instead on little data, and what each ingredient of it contributes.

    python benchmarks/small_data.py rivals DATA OUT [--cells trec10,pets5] [--skip map-grid] [--jobs 2]
    python benchmarks/small_data.py ingredients DATA OUT [--cells trec10,pets5,cifar10,digits10] [--sets 1] [--jobs 2]
    python benchmarks/small_data.py rates DATA OUT [--cells trec10,pets5] [--before] [--jobs 2]
    python benchmarks/small_data.py table DATA OUT

`rates` trains every learning rate in full on the first training set of a cell, 0.1 too, so that objective and test
accuracy can be compared, and shows which of its rates the default's race has chosen; --before trains as DE-ELBO ran
before.

DATA has the folders agnews, trec, pets and cifar10; the digits are scikit-learn's. A cell is a dataset with a number of
training examples for each class; each is run on three training sets (--sets 1: on the first), with the same 200 steps
of 32 examples for every method (and every learning rate of a search). Networks of texts are called in bfloat16
(autocast), twice as fast here; SetFit in float32. Runs are made through the records of `deelbo compare` in OUT/records:
an interrupted benchmark continues, and `table` shows what there is. One thread for each run.
"""

from __future__ import annotations

import argparse
import csv
import math
import shutil
import statistics
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deelbo._wording import duration
from deelbo.cli.quickstart import write_digits
from deelbo.compare import Comparison, Options, Records, compare, make_problems
from deelbo.compare.engines import ENGINES
from deelbo.compare.results import rows_of
from deelbo.specs import DataSpec, ModelSpec

SEEDS = (1001, 2001, 3001)
STEPS = {"steps": 200, "batch_size": 32, "likelihood": "categorical"}
RATES = (0.03, 0.01, 0.003)
GRID = {"learning_rates": (0.03, 0.01), "strengths": (0.01, 0.0001)}  # reduced: 8 runs and a final one
COLUMNS = ("accuracy, %", "NLL", "ECE, %", "NLL, calibrated", "ECE, calibrated, %", "time", "rates")
HEADING = f"| | {' | '.join(COLUMNS)} |\n|{' --- |' * (len(COLUMNS) + 1)}"
GRID_CELLS = ("digits10", "cifar10", "cifar100", "trec10")


@dataclass(frozen=True)
class Cell:
    """A dataset with a number of training examples for each class."""

    data: str
    per_class: int
    classes: int
    size: int | None = None  # of images, in pixels; None for texts
    test: int = 500

    def specs(self, data: Path, out: Path) -> tuple[DataSpec, ModelSpec]:
        folder = data / self.data
        if self.data == "digits":
            folder = write_digits(out / "digits", 1000, 600)
        elif self.data == "trec":
            folder = write_balanced(folder, out / "trec")
        spec = DataSpec(str(folder), flip=self.data != "digits")
        if self.size is None:
            return spec, ModelSpec("offline:minilm", max_length=64)
        return spec, ModelSpec("offline:efficientnet_lite0", image_size=self.size)


def write_balanced(source: Path, folder: Path) -> Path:
    """Write a table with as many training texts of each class as the rarest one has; subsets keep the proportions."""
    with (source / "train.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    counts = Counter(row["label"] for row in rows)
    seen: Counter[str] = Counter()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "train.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["text", "label"])
        writer.writeheader()
        for row in rows:
            seen[row["label"]] += 1
            if seen[row["label"]] <= min(counts.values()):
                writer.writerow(row)
    shutil.copy(source / "test.csv", folder / "test.csv")
    return folder


CELLS = {
    "digits10": Cell("digits", 10, 10, 32),
    "cifar10": Cell("cifar10", 10, 10, 64),
    "cifar100": Cell("cifar10", 100, 10, 64),
    "pets5": Cell("pets", 5, 37, 96, 555),
    "pets20": Cell("pets", 20, 37, 96, 555),
    "trec10": Cell("trec", 10, 6),
    "trec50": Cell("trec", 50, 6),
    "agnews8": Cell("agnews", 8, 4),
    "agnews32": Cell("agnews", 32, 4),
    "agnews100": Cell("agnews", 100, 4),
}

# How DE-ELBO ran before, and each ingredient of today's default taken away from it or added to what was before.
BEFORE: dict[str, Any] = {"scale_update": "gradient", "head_start": "random", "batch_norm": "batch"}
BEFORE |= {"pairs": False, "blend": 1.0}
OLD_RATES = (0.1, 0.01, 0.001, 0.0001)
VARIANTS: dict[str, tuple[dict[str, Any], tuple[float, ...]]] = {
    "today": ({}, RATES),
    "without frozen statistics": ({"batch_norm": "batch"}, RATES),
    "without the scale in closed form": ({"scale_update": "gradient"}, RATES),
    "classifier from random": ({"head_start": "random"}, RATES),
    "classifier from ridge regression": ({"head_start": "ridge"}, RATES),
    "without dropout": ({"dropout": False}, RATES),
    "by classes instead of pairs": ({"pairs": False}, RATES),
    "by pairs, whatever the number of texts": ({"pairs": True}, (0.01,)),
    "trained weights without a blend": ({"blend": 1.0}, RATES),
    "with the old rates": ({}, OLD_RATES),
    "before": (BEFORE, OLD_RATES),
    "before, with frozen statistics": ({**BEFORE, "batch_norm": "frozen"}, OLD_RATES),
    "before, with the scale in closed form": ({**BEFORE, "scale_update": "closed-form"}, OLD_RATES),
    "before, classifier from zero": ({**BEFORE, "head_start": "zero"}, OLD_RATES),
    "before, with today's rates": (BEFORE, RATES),
}


def comparisons(cell: str, data: Path, out: Path, seeds: tuple[int, ...] = SEEDS) -> Iterator[tuple[str, Comparison]]:
    """Yield the comparisons of a cell with all rivals."""
    options: dict[str, dict[str, Any]] = {
        "de-elbo": {"learning_rates": RATES},
        "probe": {},
        "default": {},
        "lp-ft": {"learning_rates": RATES},
    }
    if CELLS[cell].size is None:
        options["setfit"] = {}
    if cell in GRID_CELLS:
        options["map-grid"] = GRID
    for name, own in options.items():
        yield name, comparison(cell, data, out, Options(methods=(name,), settings=STEPS, **own), None, seeds)


def comparison(
    cell: str,
    data: Path,
    out: Path,
    options: Options,
    pooling: str | None,
    seeds: tuple[int, ...],
    test: int | None = None,
) -> Comparison:
    """Return one comparison of a cell on some training sets, with as many test examples as given or as the cell has."""
    chosen = CELLS[cell]
    data_spec, model_spec = chosen.specs(data, out)
    if pooling is not None:
        model_spec = ModelSpec(model_spec.model, max_length=model_spec.max_length, pooling=pooling)
    sizes = [chosen.per_class * chosen.classes]
    precision = "bf16" if chosen.size is None else "no"
    problems = make_problems(
        data_spec,
        [model_spec],
        options,
        train_sizes=sizes,
        seeds=seeds,
        test_size=test or chosen.test,
        precision=precision,
    )
    return Comparison(problems, Records(out / "records"))


def variants(cell: str, data: Path, out: Path, seeds: tuple[int, ...]) -> Iterator[tuple[str, Comparison]]:
    """Yield the comparisons of a cell with and without each ingredient."""
    text = CELLS[cell].size is None
    for name, (settings, rates) in VARIANTS.items():
        missing = ("statistics",) if text else ("pairs", "blend")  # what texts, and what images, do not have
        if any(word in name for word in missing):
            continue
        options = Options(methods=("de-elbo",), settings={**STEPS, **settings}, learning_rates=rates)
        yield name, comparison(cell, data, out, options, "own" if text and name.startswith("before") else None, seeds)
        if text and name in ("today", "before"):
            other = "own" if name == "today" else "mean"
            yield f"{name}, pooling {other}", comparison(cell, data, out, options, other, seeds)


def show_rates(cell: str, data: Path, out: Path, before: bool, jobs: int) -> None:
    """Print objective and test accuracy of every learning rate, and what the race chose."""
    settings = {**STEPS, **BEFORE} if before else STEPS
    pooling = "own" if before and CELLS[cell].size is None else None
    searches = {"grid": (0.1, *RATES)} if before else {"grid": (0.1, *RATES), "race": RATES}
    for search, rates in searches.items():
        options = Options(methods=("de-elbo",), settings=settings, learning_rates=rates, lr_search=search)
        found = comparison(cell, data, out, options, pooling, SEEDS[:1])
        run(found, out, jobs)
        for entry in found.entries:
            for record in entry.records():
                per_example = record["objective"] / (record["kappa"] * record["num_data"])
                accuracy = 100 * record["test"]["accuracy"]
                title = f"{cell}, {search}" + (", before" if before else "")
                print(f"| {title} | {record['learning_rate']:g} | {per_example:.4f} | {accuracy:.1f} |", flush=True)


def run(found: Comparison, out: Path, jobs: int) -> None:
    """Make the runs that are missing."""
    if found.wanted():
        engine = ENGINES["local"](out / "records", device="cpu", log=out / "workers.log", jobs=jobs)
        compare(found, engine)


def show(title: str, rows: list[dict[str, Any]]) -> str:
    """Return a line of a table: mean and standard error over the training sets."""
    columns = []
    metrics = {"accuracy": 100, "nll": 1, "ece": 100, "calibrated_nll": 1, "calibrated_ece": 100}
    for name, factor in metrics.items():
        values = [factor * row[name] for row in rows]
        error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
        digits = 1 if factor == 100 else 2
        columns.append(f"{statistics.mean(values):.{digits}f} ± {error:.{digits}f}")
    seconds = duration(statistics.mean(row["seconds"] for row in rows))
    rates = ", ".join(f"{row['learning_rate']:g}" for row in rows if row["method"] not in ("probe", "setfit"))
    return f"| {title} | {' | '.join(columns)} | {seconds} | {rates} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["rivals", "ingredients", "rates", "table"])
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--cells", default="")
    parser.add_argument("--skip", default="", help="comparisons to leave out, such as map-grid")
    parser.add_argument("--only", default="", help="the only comparisons to run, such as lp-ft,default")
    parser.add_argument("--sets", type=int, default=len(SEEDS), help="number of training sets")
    parser.add_argument("--before", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.what == "rates":
        print("| | rate | objective per example | accuracy, % |\n| --- | --- | --- | --- |")
        for cell in arguments.cells.split(",") if arguments.cells else CELLS:
            show_rates(cell, arguments.data, arguments.out, arguments.before, arguments.jobs)
        return
    makers = {"rivals": comparisons, "ingredients": variants}
    wanted = [arguments.what] if arguments.what in makers else list(makers)
    cells = arguments.cells.split(",") if arguments.cells else list(CELLS)
    for what in wanted:
        print(f"\n## {what}", flush=True)
        for cell in cells:
            print(f"\n### {cell}\n\n{HEADING}")
            for title, found in makers[what](cell, arguments.data, arguments.out, SEEDS[: arguments.sets]):
                chosen = title not in arguments.skip.split(",")
                chosen = chosen and (not arguments.only or title in arguments.only.split(","))
                if arguments.what != "table" and chosen:
                    run(found, arguments.out, arguments.jobs)
                by_method: dict[str, list[dict[str, Any]]] = {}
                for row in rows_of(found):
                    by_method.setdefault(row["method"], []).append(row)
                for method, rows in by_method.items():
                    print(show(title if what == "ingredients" else method, rows), flush=True)


if __name__ == "__main__":
    main()
