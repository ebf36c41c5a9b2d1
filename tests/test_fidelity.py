"""docs/fidelity.md: its options exist, and what it says of the paper's numbers is so."""

import math
import re
from pathlib import Path

import torch
import torch.nn.functional as F
import typer.main

from deelbo import DataEmphasizedELBO
from deelbo.cli.app import app
from deelbo.laplace.conditional import log_mean
from shared.candidates import candidate

PAGE = (Path(__file__).parents[1] / "docs" / "fidelity.md").read_text()


def test_every_option_on_the_page_exists():
    commands = typer.main.get_command(app).commands
    known = {name for command in ("compare", "finetune") for p in commands[command].params for name in p.opts}
    named = set(re.findall(r"--[a-z][a-z-]+", PAGE))
    assert len(named) > 12
    assert named <= known
    (example,) = re.findall(r"```\ndeelbo compare (.*?)```", PAGE, re.DOTALL)
    own = {name for parameter in commands["compare"].params for name in parameter.opts}
    assert set(re.findall(r"--[a-z][a-z-]+", example)) <= own


def test_a_divisor_that_counts_keys_gives_three_thirty_seconds():
    """The paper's NLL of News-4: the mean loss of each batch times the length of the batch, which is a dictionary."""
    torch.manual_seed(0)
    logits, labels = torch.randn(128, 4, dtype=torch.float64), torch.randint(4, (128,))
    total = 0.0
    for rows in range(0, 128, 32):
        part = slice(rows, rows + 32)
        batch = {"input_ids": logits[part], "attention_mask": labels[part], "token_type_ids": labels[part]}
        total += len(batch) * float(F.cross_entropy(batch["input_ids"], labels[part]))
    assert math.isclose(total / 128, 3 / 32 * float(F.cross_entropy(logits, labels)), rel_tol=1e-12)
    for shown, true in re.findall(r"(0\.\d+) (?:is )?about (\d\.\d+)", PAGE):
        assert abs(float(shown) * 32 / 3 - float(true)) < 0.01


def test_the_order_of_the_sums_matters():
    """Two draws, each right about another example: averaged predictions are good, and neither draw explains both."""
    log_p = torch.tensor([[math.log(0.99), math.log(0.01)], [math.log(0.01), math.log(0.99)]], dtype=torch.float64)
    ours = log_mean(log_p.sum(1))
    swapped = float((torch.logsumexp(log_p, 0) - math.log(2)).sum())
    assert math.isclose(ours, math.log(0.99 * 0.01), rel_tol=1e-12)
    assert math.isclose(swapped, 2 * math.log(0.5), rel_tol=1e-12)
    assert "log 1/S sum_s prod_n p(y_n | theta_s)" in PAGE
    assert "sum_n log 1/S sum_s p(y_n | theta_s)" in PAGE


def test_the_objective_depends_on_the_statistics_of_batch_normalisation():
    """The same training, estimated with running averages, and with statistics of each draw: J is another number."""
    values, weights = {}, []
    for way in ("running", "batch"):
        running = candidate(steps=8)
        running.batch_norm = way
        for _ in running.advance(8):
            pass
        weights.append(running.network[0].weight.detach().clone())
        values[way] = running.objective(final=True) / running.method.objective_scale
    assert torch.equal(*weights)
    assert values["batch"] > values["running"] + 0.01
    assert "running averages" in DataEmphasizedELBO.estimate.__doc__
    assert "Appendix B.6" not in DataEmphasizedELBO.estimate.__doc__
