"""A comparison that is asked for, before it begins."""

from deelbo.jobs.compare import _kappas


def test_the_papers_sweep_of_kappas():
    found = _kappas(("D/N", "sweep", "1"), 10**9)
    assert found == (None, *(10.0**i for i in range(10)))
