"""The one call: what it learns, and what it refuses."""

import json
import math
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import deelbo
from deelbo import AllDivergedError, Settings, events
from deelbo.report import write_report
from deelbo.run_folder import RunFolder
from deelbo.training.search import planned_steps, rungs
from shared.digits import FAST, digits, network, quick


def test_de_elbo_learns_and_elbo_collapses():
    _, test_set = digits()
    accuracies = {}
    for method in ("de-elbo", "elbo"):
        result = quick(method=method, prior="l2-zero", steps=200, lr_search="grid")
        accuracies[method] = result.evaluate(test_set)["accuracy"]
    assert accuracies["de-elbo"] > 0.75
    assert accuracies["elbo"] < 0.4
    assert result.scale > 0
    assert set(result.prior_variances) == {"backbone", "head"}


def test_map_with_given_variances():
    result = quick(method="map", prior_variances={"backbone": 0.1, "head": 1.0})
    assert result.scale is None
    assert result.prior_variances == {"backbone": 0.1, "head": 1.0}
    assert result.evaluate(digits()[1])["accuracy"] > 0.6
    with pytest.raises(ValueError, match="lacks the groups head"):
        quick(method="map", prior_variances={"backbone": 0.1})


def test_grid_keeps_the_best_candidate_by_copy():
    """The authors' search returned the last run, each starting where the previous one ended."""
    both = quick(lr_search="grid")
    alone = {rate: quick(lr_search="grid", learning_rates=(rate,)) for rate in (0.1, 0.01)}
    assert both.values[60] == {rate: result.objective for rate, result in alone.items()}
    best = max(alone, key=lambda rate: alone[rate].objective)
    assert both.learning_rate == best
    for p, q in zip(both.model.parameters(), alone[best].model.parameters(), strict=True):
        assert torch.equal(p, q)
    swapped = quick(lr_search="grid", learning_rates=(0.01, 0.1))
    assert swapped.learning_rate == best
    assert swapped.objective == both.objective


def test_race_costs_less_and_its_winner_is_the_grids_run():
    settings = Settings(learning_rates=(1, 0.1, 0.01, 0.001), steps=100)
    ladder = rungs(settings)
    assert [(r.step, r.survivors, r.cooling) for r in ladder] == [(14, 2, 6), (25, 1, 4), (100, 1, 0)]
    assert planned_steps(Settings(steps=6000)) == 1.59 * 6000
    assert [r.step for r in rungs(Settings(learning_rates=(0.1, 0.01), steps=6000))] == [1500, 6000]
    assert len(rungs(Settings(steps=40))) == 1  # too short to tell early
    steps = []
    race = quick(learning_rates=(0.1, 0.03, 0.01, 0.001), steps=100, listener=steps.append)
    assert (
        sum(isinstance(event, events.StepTaken) for event in steps)
        == 4 * 20 + 2 * 15 + 75
        == planned_steps(race.settings)
    )
    assert list(race.values) == [14, 25, 100]
    grid = quick(learning_rates=(race.learning_rate,), steps=100, lr_search="grid")
    assert race.objective == grid.objective


def test_a_diverging_candidate_is_dropped():
    class Explodes(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.fc = nn.Linear(64, 8), nn.Linear(8, 10)

        def forward(self, x):
            return self.fc(self.body(x) * torch.where(self.fc.bias.abs().sum() > 40, torch.nan, 1.0))

    def run(rates):
        torch.manual_seed(0)
        return deelbo.finetune(Explodes(), digits()[0], **{**FAST, "learning_rates": rates, "clip": None})

    with pytest.warns(UserWarning, match=r"learning rate 1e\+06 diverged"):
        assert run((1e6, 0.01)).learning_rate == 0.01
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(AllDivergedError, match="try smaller ones"):
            run((1e6, 1e7))


def test_batch_norm_is_refreshed_at_the_mean():
    result = quick()
    x = digits()[0][:][0]
    mean = result.model[0](x).detach()
    torch.testing.assert_close(result.model[1].running_mean, mean.mean(0))
    assert not torch.allclose(quick(refresh_batch_norm=False).model[1].running_mean, mean.mean(0))


def test_batch_norm_with_one_example_too_many():
    """97 = 3 * 32 + 1: a last batch of one has no variance, and one of few would count like a full one."""
    result = deelbo.finetune(network(), digits(97)[0], "4", **FAST)
    x = digits(97)[0][:][0]
    torch.testing.assert_close(result.model[1].running_mean, result.model[0](x).detach().mean(0), rtol=0.02, atol=0.02)


def test_history_has_both_terms_and_what_was_learned():
    result = quick()
    names = {"learning_rate", "step", "epoch", "rate", "nll", "accuracy", "variance_backbone", "variance_head", "scale"}
    assert names | {"kl", "kappa"} == set(result.history[0])
    rows = [row for row in result.history if row["learning_rate"] == result.learning_rate]
    assert [row["step"] for row in rows] == list(range(3, 61, 3))
    assert rows[-1]["nll"] < rows[0]["nll"]


def test_predictions():
    result = quick()
    x = digits()[1][:][0]
    p = result.predict(x)
    torch.testing.assert_close(p.sum(1), torch.ones(len(x), dtype=torch.float64))
    assert not torch.equal(result.predict(x, samples=3), p)
    assert torch.equal(result.predict(x, samples=3), result.predict(x, samples=3))
    assert set(result.evaluate(digits()[1])) == {"accuracy", "balanced_accuracy", "nll", "ece"}
    assert not result.model.training


def test_callers_randomness_is_left_alone():
    train_set, net = digits()[0], network()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    deelbo.finetune(net, train_set, "4", **{**FAST, "steps": 3})
    assert torch.equal(torch.rand(3), expected)


def test_save_and_load(tmp_path):
    result = quick()
    result.save(tmp_path / "run")
    again = deelbo.load(tmp_path / "run", network())
    x = digits()[1][:][0]
    assert torch.equal(again.predict(x), result.predict(x))
    assert torch.equal(again.predict(x, samples=2), result.predict(x, samples=2))
    assert again.history == result.history
    assert (again.settings, again.learning_rate, again.values) == (result.settings, result.learning_rate, result.values)
    with pytest.raises(FileExistsError, match="not empty"):
        result.save(tmp_path / "run")
    with pytest.raises(ValueError, match="another architecture"):
        deelbo.load(tmp_path / "run", nn.Linear(2, 2))
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    (tmp_path / "run" / "run.json").write_text(json.dumps({**run, "schema": 99}))
    with pytest.raises(ValueError, match="schema 99"):
        deelbo.load(tmp_path / "run", network())


def test_infinite_variances_are_valid_json(tmp_path):
    variances = {"backbone": math.inf, "head": 1.0}
    quick(method="map", prior_variances=variances, steps=2, out=tmp_path / "run")

    def refuse(word):
        raise ValueError(word)

    json.loads((tmp_path / "run" / "run.json").read_text(), parse_constant=refuse)
    assert "inf" in write_report(RunFolder(tmp_path / "run")).read_text()
    assert deelbo.load(tmp_path / "run", network()).prior_variances == variances


def test_augmentation_by_numpy_is_seeded():
    examples = digits()[0]

    class Noisy:
        def __len__(self):
            return 40

        def __getitem__(self, i):
            x, y = examples[i]
            return x + torch.tensor(np.random.normal(size=64), dtype=x.dtype), y  # noqa: NPY002 - what people write

    np.random.seed(1)  # noqa: NPY002
    first = deelbo.finetune(network(), Noisy(), "4", **{**FAST, "steps": 3})
    np.random.seed(2)  # noqa: NPY002
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    assert deelbo.finetune(network(), Noisy(), "4", **{**FAST, "steps": 3}).history == first.history
    assert (np.random.get_state()[1] == state).all()  # noqa: NPY002


def test_networks_that_need_a_batch_or_raise_stay_as_they_were():
    class Squeezes(nn.Module):
        def __init__(self, error=None):
            super().__init__()
            self.body, self.norm = nn.Linear(64, 8), nn.BatchNorm1d(8, track_running_stats=False)
            self.fc, self.error = nn.Linear(8, 10), error

        def forward(self, x):
            if self.error:
                raise self.error
            return self.fc(self.norm(self.body(x)).squeeze())

    deelbo.finetune(Squeezes(), digits()[0], **{**FAST, "steps": 2})
    broken = Squeezes(RuntimeError("broken"))
    with pytest.raises(RuntimeError, match="broken"):
        deelbo.finetune(broken, digits()[0], **FAST)
    assert broken.training


@pytest.mark.parametrize(
    ("examples", "options", "message"),
    [
        ([], {}, "is empty"),
        ([(torch.ones(64), 0.5)] * 4, {}, "targets of shape"),
        ([(torch.ones(64), torch.tensor([0, 1]))] * 4, {}, "a logit for each label"),
        ([(torch.ones(64), 10)] * 4, {}, "a label is 10, but the network gives 10 logits"),
        ([(torch.ones(64), -1)] * 4, {}, "a label is -1"),
        ([(torch.ones(64), 1)] * 4, {"plain_train_set": [(torch.ones(64), 1)] * 3}, "3 examples, and train_set 4"),
    ],
)
def test_data_that_do_not_fit_the_network(examples, options, message):
    with pytest.raises(ValueError, match=message):
        deelbo.finetune(network(False), examples, "4", **options, **FAST)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "elbow"}, "method='elbow', but it is one of de-elbo, elbo, la-lml, map"),
        ({"learning_rates": ()}, "learning_rates"),
        ({"learning_rates": (0.1, 0.1)}, "twice"),
        ({"learning_rates": (-1.0,)}, "positive"),
        ({"steps": 0}, "steps"),
        ({"method": "elbo", "kappa": 3.0}, "kappa=... is only for method=de-elbo"),
        ({"prior_variances": {"head": 1.0}}, "prior_variances"),
        ({"method": "map"}, "prior_variances"),
        ({"kappa": 0.0}, "kappa=0.0 is out of range"),
        ({"kappa": math.nan}, "kappa=nan"),
        ({"momentum": 2.0}, "momentum"),
        ({"clip": -1.0}, "clip"),
        ({"init_scale": 0.0}, "init_scale"),
        ({"seed": -1}, "seed"),
        ({"device": "gpu"}, "device='gpu', but there is cpu"),
        ({"device": "cuda:1"}, "CUDA_VISIBLE_DEVICES"),
        ({"precision": "fp16"}, "needs a GPU"),
        ({"precision": "int3"}, "int3"),
    ],
)
def test_wrong_settings_are_refused_before_work(options, message):
    with pytest.raises(ValueError, match=message):
        quick(**options)


def test_dictionaries_for_hugging_face_networks():
    import transformers

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.BertConfig(vocab_size=40, num_labels=2, max_position_embeddings=8, **sizes)
    tokens = torch.randint(40, (24, 6), generator=torch.Generator().manual_seed(0))
    examples = [{"input_ids": t, "labels": int(t[0] > 20)} for t in tokens]
    result = deelbo.finetune(transformers.BertForSequenceClassification(config), examples, **{**FAST, "steps": 4})
    assert result.predict({"input_ids": tokens}).shape == (24, 2)
    assert math.isfinite(result.evaluate(examples)["nll"])
