"""Small comparisons that the tests of `compare` share."""

import json
import multiprocessing
import os
import signal
import time
from collections import Counter

from deelbo.compare import Comparison, KnownRecords, Options, Records, make_problems, make_strategies
from deelbo.specs import DataSpec, ModelSpec
from shared.pictures import image_folder, small

METHODS = ("de-elbo", "elbo", "la-lml", "la-clml", "map-grid", "map-bo")
# Ten runs, long enough to be killed in.
FEW = {
    "methods": ("de-elbo", "map-grid"),
    "settings": {"steps": 60, "batch_size": 6, "samples": 2},
}  # ten runs, long enough to be killed in


def small_options(**changes):
    fields = {
        "methods": METHODS,
        "settings": {"steps": 8, "batch_size": 6, "samples": 2},
        "learning_rates": (0.1, 0.01),
        "strengths": (0.01, 0.0),
        "bo_iterations": 2,
        "clml_samples": 3,
        "temperatures": (1.0, 0.01),
    }
    return Options(**{**fields, **changes})


def small_problems(folder, options=None, **choices):
    data = folder / "data"
    if not data.exists():
        image_folder(data, train=10, test=3)
    models = [ModelSpec(name, image_size=28) for name in choices.pop("models", ["shared.pictures:small"])]
    choices = {"train_sizes": [18], "seeds": [1001], **choices}
    return make_problems(DataSpec(str(data)), models, options or small_options(), **choices)


def small_comparison(folder, options=None, records=None, **choices):
    return Comparison(small_problems(folder, options, **choices), Records(records or folder / "records"))


def journal(records):
    """Return how often each run ended, and the lines in order."""
    lines = [json.loads(line) for line in (records / "journal.jsonl").read_text().splitlines()]
    return Counter(line["key"] for line in lines if line["event"] == "ended"), lines


def without_times(records):
    """Return every record by key, without what differs from one time to the next."""
    found = {}
    for path in records.glob("*.json"):
        record = json.loads(path.read_text())
        found[path.stem] = {k: v for k, v in record.items() if k not in ("seconds", "finished")}
    return found


def deadly(num_classes):
    """A network whose making kills a worker, as too little memory would."""
    if multiprocessing.parent_process() is not None:
        os.kill(os.getpid(), signal.SIGKILL)
    return small(num_classes)


def put_record(records, trial, nll=1.0, accuracy=0.5, objective=0.0, clml=None, seconds=1.0):
    """Write a record by hand, as if a run had been made."""
    records.put(trial.key, {
        "key": trial.key, "trial": trial.identity(), "diverged": nll is None, "objective": objective, "runs": 1.0,
        "validation": {"nll": nll} if trial.held_out and nll is not None else None,
        "clml": None if trial.clml is None else {"value": clml},
        "test": {"balanced_accuracy": accuracy},
        "seconds": {"training": seconds, "objective": 0.25, "validation": 0.5, "clml": 4.0},
    })  # fmt: skip


def strategy_setup(folder, method, **changes):
    """Return a problem, a strategy for it, the folder of records and what reads them."""
    (problem,) = small_problems(folder, small_options(methods=(method,), **changes))
    (strategy,) = make_strategies(problem.options)
    return problem, strategy, Records(folder / "records"), KnownRecords(Records(folder / "records"))


def kill_one(records, seen):
    """Kill a worker in the middle of its second run."""
    for _ in range(2000):
        time.sleep(0.05)
        if (records / "journal.jsonl").exists():
            ended, lines = journal(records)
            begun = [line for line in lines if line["event"] == "begun"]
            if len(begun) >= 2 and begun[-1]["key"] not in ended:
                seen.append(begun[-1]["process"])
                os.kill(begun[-1]["process"], signal.SIGKILL)
                return
