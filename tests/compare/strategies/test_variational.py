"""DE-ELBO and ELBO as strategies."""

from deelbo.compare import KnownRecords, Records, make_strategies
from shared.comparisons import small_options, small_problems


def test_several_kappas_are_several_strategies(tmp_path):
    options = small_options(methods=("de-elbo",), kappas=(1.0, None))
    (problem,) = small_problems(tmp_path, options)
    known = KnownRecords(Records(tmp_path / "records"))
    kappas = [strategy.plan(problem, known).trials[0].settings.kappa for strategy in make_strategies(options)]
    assert kappas == [1.0, None]
