"""Regression and several labels from texts, beside scikit-learn on the same data.

    python benchmarks/other_tasks.py UCI AG_NEWS OUT [--steps 300]

UCI has concrete/data.txt with its index files; AG_NEWS has train.csv and test.csv (text, label). Two tables are written
into OUT and `deelbo finetune` is run on them with offline:minilm; a run that is finished is not repeated.

- concrete: "cement 540, slag 0, ..." -> compressive strength in MPa (927 training rows, 103 test rows, split 0).
- topics: two news of different or equal topics joined to one text -> the set of their topics (400 and 1,000 texts).
"""

from __future__ import annotations

import argparse
import csv
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import RandomForestRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegressionCV, RidgeCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from deelbo.jobs.finetune import finetune_job
from deelbo.metrics import compute_metrics
from deelbo.run_folder import RunFolder
from deelbo.specs import DataSpec, ModelSpec

INGREDIENTS = ("cement", "slag", "fly ash", "water", "superplasticizer", "coarse aggregate", "fine aggregate", "age")
Rows = list[dict[str, Any]]


def write_concrete(uci: Path, out: Path) -> Path:
    """Write the mixtures as texts with their strength."""
    table = np.loadtxt(uci / "concrete" / "data.txt")
    for part in ("train", "test"):
        rows = [
            {
                "text": ", ".join(f"{name} {value:g}" for name, value in zip(INGREDIENTS, table[i, :8], strict=True)),
                "strength": table[i, 8],
            }
            for i in np.loadtxt(uci / "concrete" / f"index_{part}_0.txt").astype(int)
        ]
        _write(out / "concrete" / f"{part}.csv", rows)
    return out / "concrete"


def write_topics(news: Path, out: Path) -> Path:
    """Write pairs of news as one text with the set of their topics."""
    for part, number in (("train", 400), ("test", 1000)):
        with (news / f"{part}.csv").open(newline="") as file:
            singles = list(csv.DictReader(file))
        generator = random.Random(0)
        pairs = [generator.sample(singles, 2) for _ in range(number)]
        rows = [
            {
                "text": " ".join(_beginning(row["text"]) for row in pair),
                "topics": "|".join(sorted({row["label"] for row in pair})),
            }
            for pair in pairs
        ]
        _write(out / "topics" / f"{part}.csv", rows)
    return out / "topics"


def _beginning(text: str) -> str:
    return " ".join(text.split()[:20])


def _write(path: Path, rows: Rows) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def _read(folder: Path) -> tuple[Rows, Rows]:
    parts = []
    for part in ("train", "test"):
        with (folder / f"{part}.csv").open(newline="") as file:
            parts.append(list(csv.DictReader(file)))
    return parts[0], parts[1]


def concrete_baselines(uci: Path, folder: Path) -> None:
    """Print scikit-learn's results: the mean, ridge on words, ridge and a random forest on the numbers themselves."""
    train, test = _read(folder)
    y, y_test = (np.array([float(row["strength"]) for row in rows]) for rows in (train, test))
    numbers, numbers_test = (
        np.array([[float(part.rsplit(" ", 1)[1]) for part in row["text"].split(", ")] for row in rows])
        for rows in (train, test)
    )
    texts, texts_test = ([row["text"] for row in rows] for rows in (train, test))
    ridge = RidgeCV(np.logspace(-3, 3, 13))
    fits = {
        "mean of the training targets": np.full(len(y_test), y.mean()),
        "ridge on TF-IDF of the texts": make_pipeline(TfidfVectorizer(token_pattern=r"\S+ [\d.]+|\S+"), ridge)
        .fit(texts, y)
        .predict(texts_test),
        "ridge on the 8 numbers": make_pipeline(StandardScaler(), ridge).fit(numbers, y).predict(numbers_test),
        "random forest on the 8 numbers": RandomForestRegressor(500, random_state=0)
        .fit(numbers, y)
        .predict(numbers_test),
    }
    for name, predicted in fits.items():
        error = predicted - y_test
        rmse, r2 = np.sqrt((error**2).mean()), 1 - (error**2).sum() / ((y_test - y_test.mean()) ** 2).sum()
        print(f"{name:34} RMSE {rmse:.2f}  MAE {np.abs(error).mean():.2f}  R2 {r2:.3f}")


def topics_baselines(folder: Path) -> None:
    """Print scikit-learn's result: one logistic regression for each topic on TF-IDF, strength by cross-validation."""
    train, test = _read(folder)
    names = sorted({name for row in train for name in row["topics"].split("|")})
    y, y_test = (np.array([[n in row["topics"].split("|") for n in names] for row in rows]) for rows in (train, test))
    model = make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True),
        OneVsRestClassifier(
            LogisticRegressionCV(Cs=10, cv=5, max_iter=2000, l1_ratios=(0,), use_legacy_attributes=False)
        ),
    )
    probabilities = model.fit([row["text"] for row in train], y).predict_proba([row["text"] for row in test])
    metrics = compute_metrics("bernoulli", torch.tensor(probabilities), torch.tensor(y_test).long())
    print("logistic regressions on TF-IDF     " + "  ".join(f"{name} {value:.3f}" for name, value in metrics.items()))


def deelbo_run(folder: Path, label_column: str, steps: int) -> None:
    """Print the test results of `deelbo finetune`, after training if there is no finished run."""
    run = RunFolder(folder.with_name(folder.name + "-run"))
    if run.status != "finished":
        settings = {"steps": steps, "batch_size": 32, "learning_rates": (0.1, 0.03, 0.01), "seed": 0}
        data = DataSpec(str(folder), label_column=label_column)
        finetune_job(data, ModelSpec("offline:minilm", max_length=64), settings, run.path, listener=print)
    stored = run.read()
    values = "  ".join(f"{name} {value:.3f}" for name, value in stored["metrics"].items())
    print(f"deelbo finetune, offline:minilm    {values}  ({stored['speed']['seconds']:.0f} s of steps)")


def main() -> None:
    """Run both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("uci", type=Path, help="folder with concrete/data.txt")
    parser.add_argument("news", type=Path, help="folder with AG News as train.csv and test.csv")
    parser.add_argument("out", type=Path, help="folder for tables and runs")
    parser.add_argument("--steps", type=int, default=300, help="optimizer steps of a full run")
    arguments = parser.parse_args()
    concrete, topics = write_concrete(arguments.uci, arguments.out), write_topics(arguments.news, arguments.out)
    print("concrete: compressive strength in MPa")
    concrete_baselines(arguments.uci, concrete)
    print("topics: several labels")
    topics_baselines(topics)
    deelbo_run(topics, "topics", arguments.steps)
    deelbo_run(concrete, "strength", arguments.steps)


if __name__ == "__main__":
    main()
