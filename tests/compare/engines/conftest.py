"""What the tests of all engines compare with."""

import pytest

from deelbo.compare import compare
from deelbo.compare.engines import LocalEngine
from shared.comparisons import FEW, small_comparison, small_options
from shared.processes import fork_workers


@pytest.fixture(scope="session")
def local(tmp_path_factory):
    """A comparison that nobody disturbed; with two workers each has one thread, as in the others, for the same bits."""
    folder = tmp_path_factory.mktemp("local")
    comparison = small_comparison(folder, small_options(**FEW))
    with pytest.MonkeyPatch.context() as patch:
        fork_workers(patch)
        compare(comparison, LocalEngine(folder / "records", 2, "cpu", folder / "log"))
    assert comparison.counts() == (10, 10)
    return folder / "records"
