"""Small comparisons that the tests of `compare` share."""

import json
import multiprocessing
import os
import signal
from collections import Counter

from deelbo.compare import Comparison, Options, Records, make_problems
from deelbo.specs import DataSpec, ModelSpec
from shared.pictures import image_folder, small

METHODS = ("de-elbo", "elbo", "la-lml", "la-clml", "map-grid", "map-bo")


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
