"""Can the training objective choose the network? Rank correlation between objective and test result over models.

Two scores of a finished run of DE-ELBO, both per example so that they compare with a mean log-likelihood:

    J / (kappa N) = E_q[ log p(y | theta) ] / N - KL / (kappa N)      at the run's own kappa, D/N unless given
    J' / (k N)    = E_q[ log p(y | theta) ] / N - KL / (k N)          at one k for all models, the geometric mean
                                                                      of their kappas

At kappa = D/N every network may spend as many nats on its KL as it has weights; at a common kappa a larger network
pays more for being far from its prior.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from deelbo._extras import require
from deelbo.metrics import main_metric

ALL_ORDERS = 5040  # orders of seven models; of more, as many random ones are tried
SURE = 0.05  # largest share of random orders that agree as well, for a correlation to be no chance

Row = dict[str, Any]


@dataclass(frozen=True)
class ModelChoice:
    """How well one score orders some models.

    Args:
        score: Name of the score.
        correlations: Spearman's rank correlation with the main metric on the test set, for each training set; 1 for
            the same order. Metrics of which lower is better count with the opposite sign.
        models: Number of models.
        chance: Share of orders of the models that agree with the test results at least as well.
        lost: Mean loss in the main metric by taking the model with the best score, over the training sets.
    """

    score: str
    correlations: list[float]
    models: int
    chance: float
    lost: float

    @property
    def mean(self) -> float:
        """Mean rank correlation over the training sets."""
        return sum(self.correlations) / len(self.correlations)

    @property
    def verdict(self) -> str:
        """A sentence that says whether to trust the score for the choice of a model on such data."""
        if self.mean <= 0:
            return "Do not trust it: on these data the order is no better than a random one, or the opposite."
        if self.chance <= SURE:
            return "It can be trusted on data like these; on others it is untested."
        smallest = 1 / math.factorial(self.models) if self.models <= 7 else 1 / ALL_ORDERS
        few = f"; {self.models} models are too few to tell" if smallest > SURE else ""
        return f"Do not rely on it: {self.chance:.0%} of all orders agree at least as well{few}."


def model_choices(rows: Sequence[Row]) -> list[ModelChoice]:
    """Return how well each score orders the models of a comparison; nothing for fewer than three models.

    Args:
        rows: Result rows of a comparison; those of DE-ELBO at its default kappa count, of training sets on which every
            model was trained.
    """
    ours = [row for row in rows if row["role"] == "reference" and row["default_kappa"] and not row["diverged"]]
    models = list(dict.fromkeys(row["model"] for row in ours))
    places: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in ours:
        places.setdefault((row["prior"], row["train_size"], row["seed"]), {})[row["model"]] = row
    complete = [[place[model] for model in models] for place in places.values() if len(place) == len(models)]
    if len(models) < 3 or not complete:
        return []
    found = [_choice("J / (kappa N), each at its own kappa", complete, own_score)]
    several = len({row["kappa"] for place in complete for row in place}) > 1
    if several and all(row.get("kl") is not None for place in complete for row in place):
        found.append(_choice("J / (kappa N) at a common kappa", complete, None))
    return found


def own_score(row: Row) -> float:
    """Return J / (kappa N) of a run."""
    return row["score"] / (row["kappa"] * row["train_size"])


def score_at(row: Row, kappa: float) -> float:
    """Return J / (kappa N) of a trained posterior at another kappa, from its J and its KL / (kappa N)."""
    log_likelihood = own_score(row) + row["kl"]
    return log_likelihood - row["kl"] * row["kappa"] / kappa


def _choice(name: str, places: list[list[Row]], score: Callable[[Row], float] | None) -> ModelChoice:
    metric = main_metric(places[0][0]["likelihood"])
    sign = 1 if metric.better == "higher" else -1
    results = [[sign * row[metric.name] for row in place] for place in places]
    scores = [_scores(place, score) for place in places]
    correlations = [_spearman(*pair) for pair in zip(scores, results, strict=True)]
    picked = [of[of_scores.index(max(of_scores))] for of, of_scores in zip(results, scores, strict=True)]
    lost = sum(max(of) - got for of, got in zip(results, picked, strict=True)) / len(results)
    return ModelChoice(name, correlations, len(places[0]), _chance(scores, results), lost)


def _scores(place: list[Row], score: Callable[[Row], float] | None) -> list[float]:
    if score is not None:
        return [score(row) for row in place]
    common = math.exp(sum(math.log(row["kappa"]) for row in place) / len(place))
    return [score_at(row, common) for row in place]


def _chance(scores: list[list[float]], results: list[list[float]]) -> float:
    """Return the share of orders of the models whose mean correlation is at least that of the scores.

    The same order is given to the scores of all training sets, because a score that prefers a model on one of them
    mostly does so on all: more training sets of the same models are no more evidence about other models.
    """
    number = len(scores[0])

    def mean(order: Sequence[int]) -> float:
        pairs = zip(scores, results, strict=True)
        return sum(_spearman([s[i] for i in order], of) for s, of in pairs) / len(scores)

    observed = mean(range(number))
    orders: list[Sequence[int]]
    if math.factorial(number) <= ALL_ORDERS:
        orders = list(itertools.permutations(range(number)))
    else:
        generator = random.Random(0)
        orders = [range(number), *(generator.sample(range(number), number) for _ in range(ALL_ORDERS - 1))]
    return sum(mean(order) >= observed - 1e-5 for order in orders) / len(orders)


def _spearman(scores: Sequence[float], results: Sequence[float]) -> float:
    """Return the rank correlation; 0 if one side does not differ at all."""
    if len(set(scores)) == 1 or len(set(results)) == 1:
        return 0.0
    function = require("torchmetrics.functional", "training").spearman_corrcoef
    return float(function(torch.tensor(scores, dtype=torch.float64), torch.tensor(results, dtype=torch.float64)))


def choice_markdown(rows: Sequence[Row]) -> str:
    """Return a section in Markdown about whether the objective could have chosen the model; "" for few models."""
    choices = model_choices(rows)
    if not choices:
        return ""
    metric = main_metric(rows[0]["likelihood"])
    lines = [
        "### Could the training objective choose the model?",
        "",
        f"| score of DE-ELBO | rank correlation with test {metric.title}, mean (smallest–largest) over "
        "training sets | share of all orders that agree as well | lost by its choice |",
        "| --- | --- | --- | --- |",
    ]
    for choice in choices:
        low, high = min(choice.correlations), max(choice.correlations)
        lost = f"{100 * choice.lost:.1f} points" if metric.percent else f"{choice.lost:.3g}"
        lines.append(
            f"| {choice.score} | {choice.mean:+.2f} ({low:+.2f} to {high:+.2f}) | {choice.chance:.3f} | {lost} |"
        )
    return "\n".join([*lines, "", *(f"{choice.score}: {choice.verdict}" for choice in choices), ""])
