import pickle

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.datasets import load_digits, make_moons
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from deelbo.rff import RFFClassifier


@pytest.mark.slow
@parametrize_with_checks([RFFClassifier(num_features=32, max_iter=40)])
def test_scikit_learn_accepts_it(estimator, check):
    check(estimator)


def moons(number=20, seed=42):
    return make_moons(number, noise=0.1, random_state=seed)


def fitted(**settings):
    return RFFClassifier(64, **{"max_iter": 20, "random_state": 0, "dtype": "float64", **settings}).fit(*moons())


def test_noise_on_logits_is_noise_on_weights():
    """Local reparameterisation: the same expected log-likelihood as draws of all R C weights."""
    model, (x, y) = fitted(), moons()
    x = (x - model._center) / model._unit
    inputs, labels, generator = torch.from_numpy(x), torch.from_numpy(y), torch.Generator().manual_seed(0)
    local = model._nll(inputs, labels, 20_000, generator).item()
    from deelbo.rff.features import fourier_features

    phi = fourier_features(inputs, model._A, model._b, model._lengthscale, model._outputscale)
    noise = torch.randn(20_000, 64, 2, dtype=torch.float64, generator=generator)
    logits = phi @ (model._parameters["mean"] + model._scale * noise)
    slow = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.repeat(20_000)).item()
    assert local == pytest.approx(slow, rel=0.01)


def test_objective_is_the_definition():
    from torch.distributions import Normal, kl_divergence

    model = fitted()
    mean = model._parameters["mean"]
    kl = kl_divergence(Normal(mean, model._scale), Normal(torch.zeros_like(mean), 1.0)).sum().item()
    assert model._kl().item() == pytest.approx(kl, rel=1e-9)
    x, y = moons()
    x = (x - model._center) / model._unit
    nll = model._nll(torch.from_numpy(x), torch.from_numpy(y), 20_000, torch.Generator().manual_seed(1)).item()
    assert model._kappa == 64 * 2 / 20
    assert model.objective_ == pytest.approx(-model._kappa * 20 * nll - kl, rel=0.02)


def test_probabilities_are_averages_over_the_posterior():
    """Two classes: the difference of logits is Gaussian, and the sigmoid's average an integral."""
    model = fitted()
    x = np.array([[0.0, 0.0], [0.5, 0.2], [3.0, 3.0]])
    mean, std = model._logits(model._inputs(x))
    expected = [
        quad(lambda z, m=m, s=s: norm.pdf(z) / (1 + np.exp(-(m + s * z))), -8, 8)[0]
        for m, s in zip((mean[:, 1] - mean[:, 0]).tolist(), (std[:, 0] * 2**0.5).tolist(), strict=True)
    ]
    np.testing.assert_allclose(model.predict_proba(x)[:, 1], expected, atol=0.005)


def test_learns_where_the_elbo_stays_near_the_prior():
    x, y = moons()
    x_test, y_test = moons(500, 1)
    nll = {}
    for objective in ("de-elbo", "elbo"):
        model = RFFClassifier(512, objective=objective, max_iter=200, random_state=0).fit(x, y)
        nll[objective] = -np.log(model.predict_proba(x_test)[np.arange(500), y_test]).mean()
        if objective == "de-elbo":
            assert model.score(x_test, y_test) > 0.97
            assert 0.2 < model.lengthscale_ < 0.8
        else:
            assert model.scale_ > 0.98
    assert nll["de-elbo"] < 0.1 < 0.2 < nll["elbo"]


@pytest.mark.slow
def test_noisy_labels_are_not_memorised_however_long_it_trains():
    x, y = make_moons(150, noise=0.3, random_state=0)
    x_test, y_test = make_moons(2000, noise=0.3, random_state=1)

    def nll(**settings):
        model = RFFClassifier(512, random_state=0, **settings).fit(x, y)
        return -model.predict_log_proba(x_test)[np.arange(2000), y_test].mean(), model

    short, long = (nll(max_iter=steps)[0] for steps in (200, 800))
    assert short < 0.31
    assert long == pytest.approx(short, abs=0.01)
    free, model = nll(max_iter=800, min_lengthscale=0)
    assert free > 0.4  # what the objective alone comes to
    assert model.score(x, y) > 0.95
    _, model = nll(max_iter=200, min_lengthscale=0.5)
    assert model.lengthscale_ == pytest.approx(0.5, rel=1e-3)


def test_stripes_and_a_far_row():
    x = np.random.default_rng(0).uniform(size=(500, 1))
    y = np.floor(12 * x[:, 0]) % 2
    assert RFFClassifier(256, max_iter=150, random_state=0).fit(x[:400], y[:400]).score(x[400:], y[400:]) > 0.9
    x, y = moons(200)
    far = np.concatenate([[[1e4, 1e4]], x])
    assert RFFClassifier(128, max_iter=150, random_state=0).fit(far, np.concatenate([[0], y])).score(x, y) > 0.95


def test_digits_in_batches_and_names_for_classes():
    x, y = load_digits(return_X_y=True)
    names = np.array([f"digit {i}" for i in range(10)])[y]
    train, test, y_train, y_test = train_test_split(x / 16, names, random_state=0, stratify=y)
    model = RFFClassifier(256, max_iter=60, batch_size=200, random_state=0).fit(train, y_train)
    assert model.score(test, y_test) > 0.95
    probabilities = model.predict_proba(test)
    assert probabilities.shape == (450, 10)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    np.testing.assert_array_equal(probabilities, pickle.loads(pickle.dumps(model)).predict_proba(test))
    again = RFFClassifier(256, max_iter=60, batch_size=200, random_state=0).fit(train, y_train)
    np.testing.assert_array_equal(probabilities, again.predict_proba(test))


def test_units_origin_and_precision_do_not_matter():
    x, y = moons(100)
    plain = RFFClassifier(128, max_iter=200, random_state=0).fit(x, y)
    moved = RFFClassifier(128, max_iter=200, random_state=0).fit(x * 1e-9 + 1e-6, y)
    np.testing.assert_allclose(moved.predict_proba(x * 1e-9 + 1e-6), plain.predict_proba(x), atol=0.02)
    columns = RFFClassifier(128, max_iter=200, random_state=0, ard=True).fit(x * [1, 100], y)
    assert columns.score(x * [1, 100], y) > 0.97
    expected = plain.predict_proba(x)
    np.testing.assert_array_equal(plain.set_params(dtype="float64").predict_proba(x), expected)  # for the next fit


def test_pipelines_grids_and_a_lengthscale_for_each_input(capsys):
    x, y = moons(60)
    x = np.column_stack([x, np.random.default_rng(0).standard_normal(60)])
    model = RFFClassifier(128, ard=True, max_iter=300, random_state=0, verbose=1).fit(x, y)
    assert "objective per row" in capsys.readouterr().err
    assert model.lengthscale_[2] > 1.5 * model.lengthscale_[:2].max()
    search = GridSearchCV(RFFClassifier(max_iter=20, random_state=0), {"num_features": [8, 64]}, cv=2).fit(x, y)
    assert search.best_score_ > 0.7
    assert make_pipeline(StandardScaler(), RFFClassifier(64, max_iter=100, random_state=0)).fit(x, y).score(x, y) > 0.8


def test_bad_input():
    x, y = moons()
    wrong = {
        "objective": "lml",
        "num_features": 0,
        "learning_rate": None,
        "min_lengthscale": -1.0,
        "batch_size": 0.5,
        "dtype": "bfloat16",
        "kappa": "1",
    }
    for name, value in wrong.items():
        with pytest.raises(ValueError, match=f"{name}="):
            RFFClassifier(**{name: value}).fit(x, y)
    with pytest.raises(ValueError, match="one class: 7"):
        RFFClassifier().fit(x, np.full(20, 7))
    with pytest.raises(ValueError, match="NaN"):
        RFFClassifier().fit(np.where(x > 0, x, np.nan), y)
    with pytest.raises(ValueError, match="Unknown label type"):
        RFFClassifier().fit(x, y + 0.5)
    with pytest.raises(ValueError, match="minimum of 2"):
        RFFClassifier().fit(x[:1], y[:1])
    with pytest.raises(ValueError, match="diverged"):
        RFFClassifier(32, learning_rate=1e6, max_iter=50).fit(x, y)
    with pytest.raises(MemoryError, match="num_features"):
        RFFClassifier(10**10).fit(x, y)
    with pytest.raises(NotFittedError):
        RFFClassifier().predict_proba(x)


def test_the_papers_four_rates_are_compared_by_the_objective():
    rates = (0.1, 0.01, 0.001, 0.0001)
    alone = {rate: fitted(learning_rate=rate) for rate in rates}
    best = max(rates, key=lambda rate: alone[rate].objective_)
    chosen = fitted(learning_rate=rates)
    assert chosen.learning_rate_ == best
    assert chosen.objective_ == alone[best].objective_
    x, _ = moons()
    np.testing.assert_array_equal(chosen.predict_proba(x), alone[best].predict_proba(x))
    assert (chosen.lengthscale_, chosen.scale_) == (alone[best].lengthscale_, alone[best].scale_)
    assert fitted(learning_rate=rates[::-1]).learning_rate_ == best  # each starts anew
    for wrong in ((0.1, -1.0), (), "fast", None):
        with pytest.raises(ValueError, match="learning_rate"):
            fitted(learning_rate=wrong)
