"""The grid chosen by the conditional marginal likelihood, with records written out by hand."""

import pytest

from deelbo.compare import KnownRecords, Records, make_strategies
from shared.comparisons import put_record, small_options, small_problems


def test_clml_chooses_by_its_own_value_and_serves_the_grid(tmp_path):
    (problem,) = small_problems(tmp_path, small_options(methods=("la-clml", "map-grid")))
    conditional, grid = make_strategies(problem.options)
    records, known = Records(tmp_path / "records"), KnownRecords(Records(tmp_path / "records"))
    cells = conditional.plan(problem, known).trials
    assert [t.key for t in cells] == [t.key for t in grid.plan(problem, known).trials]
    for i, trial in enumerate(cells):
        put_record(records, trial, nll=float(i), clml=None if i == 7 else float(i))
    by_clml, by_nll = (strategy.plan(problem, known).finals[0] for strategy in (conditional, grid))
    assert by_clml.settings.learning_rates == cells[6].settings.learning_rates
    assert by_nll.settings.prior_variances == pytest.approx(
        {g: v * 14 / 18 for g, v in cells[0].settings.prior_variances.items()}
    )
    assert conditional.seconds(known(cells[0])) == 5.0
    assert grid.seconds(known(cells[0])) == 1.5
