"""Training by the library SetFit, on a tiny encoder."""

import pytest

from deelbo.compare import Options, Records, make_problems, make_strategies
from deelbo.compare.records import KnownRecords
from deelbo.compare.running import run_trial
from deelbo.specs import DataSpec, ModelSpec
from shared.comparisons import strategy_setup
from shared.pictures import WORDS, tiny_encoder


@pytest.mark.slow
def test_texts_are_trained_and_tested(tmp_path):
    pytest.importorskip("setfit")
    for part in ("train", "test"):
        rows = [f"{word},{name}" for name, words in WORDS.items() for word in words.split()[:4]]
        (tmp_path / f"{part}.csv").write_text("\n".join(["text,label", *rows]))
    options = Options(methods=("setfit",), settings={"steps": 4, "batch_size": 4, "likelihood": "categorical"})
    spec = ModelSpec(tiny_encoder(tmp_path / "encoder", pooling_mode="mean"))
    (problem,) = make_problems(DataSpec(str(tmp_path)), [spec], options)
    (strategy,) = make_strategies(options)
    records = Records(tmp_path / "records")
    (trial,) = strategy.plan(problem, KnownRecords(records)).trials
    record = run_trial(trial, records, "cpu")
    assert record["tested"] == record["num_data"] == sum(len(words.split()[:4]) for words in WORDS.values())
    assert 0 <= record["test"]["accuracy"] <= 1
    assert record["seconds"]["training"] > 0


def test_images_are_refused(tmp_path):
    problem, _, records, _ = strategy_setup(tmp_path, "setfit")
    with pytest.raises(ValueError, match="setfit is for texts, not for images"):
        run_trial(problem.trial(library="setfit"), records, "cpu")
