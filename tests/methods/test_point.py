"""MAP in the training loop."""

import pytest

from shared.digits import digits, quick


def test_map_with_given_variances():
    result = quick(method="map", prior_variances={"backbone": 0.1, "head": 1.0})
    assert result.scale is None
    assert result.prior_variances == {"backbone": 0.1, "head": 1.0}
    assert result.evaluate(digits()[1])["accuracy"] > 0.6
    with pytest.raises(ValueError, match="lacks the groups head"):
        quick(method="map", prior_variances={"backbone": 0.1})
