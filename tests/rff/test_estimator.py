"""What the regressor and the classifier share."""

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError

from deelbo.rff import RFFClassifier, RFFRegressor
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


def test_kappa_is_d_over_n_but_at_least_one():
    assert RFFRegressor(objective="de-elbo")._emphasis(1000, 20) == 50.0
    assert RFFRegressor(objective="de-elbo")._emphasis(10, 20) == 1.0
    assert RFFRegressor(objective="de-elbo", kappa=3)._emphasis(1000, 20) == 3.0
    assert RFFRegressor(objective="elbo")._emphasis(1000, 20) == 1.0


@pytest.mark.parametrize("estimator", [RFFRegressor, RFFClassifier])
def test_features_are_those_of_the_seed(estimator):
    model = estimator(7, random_state=5, dtype="float64")
    A, b, seed = model._draw_features(3)
    random = np.random.RandomState(5)
    np.testing.assert_array_equal(A.numpy(), random.standard_normal((3, 7)))
    np.testing.assert_array_equal(b.numpy(), random.uniform(0, 2 * np.pi, 7))
    assert seed == random.randint(2**31 - 1)


@pytest.mark.parametrize("ard", [False, True])
def test_inputs_are_shifted_and_scaled(ard):
    X = np.column_stack([np.arange(10.0) * 3 + 100, np.full(10, 7.0), np.arange(10.0)])
    model = RFFRegressor(dtype="float64")
    model._scale_inputs(X, ard)
    spread = X.std(0)
    unit = np.where(spread > 0, spread, 1.0) if ard else np.sqrt((spread**2).mean())
    np.testing.assert_allclose(model._inputs(X).numpy(), (X - X.mean(0)) / unit)
    constant = RFFRegressor()
    constant._scale_inputs(np.full((4, 2), 0.1), ard)
    assert constant._inputs(np.full((4, 2), 0.1)).isfinite().all()


def test_parameters_are_checked_by_name():
    model = RFFRegressor(num_features=True)
    with pytest.raises(ValueError, match="num_features=True must be a positive integer"):
        model._check_parameters(("num_features",))
    with pytest.raises(ValueError, match="objective='x', but it must be one of a, b"):
        RFFRegressor(objective="x")._check_parameters((), objective=("a", "b"))
    with pytest.raises(ValueError, match="kappa=nan must be positive, or None"):
        RFFRegressor(kappa=float("nan"))._check_parameters(())
    RFFRegressor(num_features=np.int64(3))._check_parameters(("num_features",), objective=("de-elbo", "lml", "elbo"))
