"""What the regressor and the classifier share."""

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError

from deelbo.rff import RFFRegressor
from shared.regression import toy


def test_progress_is_shown_on_request(capsys):
    x, y = toy()
    RFFRegressor(16, random_state=0).fit(x, y)
    assert capsys.readouterr() == ("", "")
    RFFRegressor(16, random_state=0, verbose=1).fit(x, y)
    assert "objective per row" in capsys.readouterr().err


def test_views_and_read_only_arrays():
    x, y = toy()
    expected = RFFRegressor(16, random_state=0).fit(x[::-1].copy(), y[::-1].copy()).predict(x)
    frozen = x.copy()
    frozen.flags.writeable = False
    model = RFFRegressor(16, random_state=0).fit(x[::-1], y[::-1])
    np.testing.assert_array_equal(model.predict(frozen), expected)


def test_a_fit_that_fails_leaves_the_earlier_one(monkeypatch):
    x, y = toy(60)
    model = RFFRegressor(64).fit(x, y)
    expected = model.predict(x)

    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(RFFRegressor, "_keep_posterior", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.fit(x[:30] * 2, y[:30])
    np.testing.assert_array_equal(model.predict(x), expected)
    new = RFFRegressor(64)
    with pytest.raises(KeyboardInterrupt):
        new.fit(x, y)
    with pytest.raises(NotFittedError):
        new.predict(x)


def test_callers_may_have_switched_gradients_off():
    x, y = toy()
    expected = RFFRegressor(32, random_state=0).fit(x, y).predict(x)
    for off in (torch.no_grad, torch.inference_mode):
        with off():
            np.testing.assert_array_equal(RFFRegressor(32, random_state=0).fit(x, y).predict(x), expected)
