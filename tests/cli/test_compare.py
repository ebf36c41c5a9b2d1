"""`deelbo compare` as a user types it."""

import csv
import json
import random
import signal
import time

import pytest

from deelbo.cli import main
from shared import processes
from shared.comparisons import journal, without_times
from shared.pictures import image_folder, text_table, tiny_bert

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_workers")]

FAST = [
    *("--steps", "8", "--batch-size", "6", "--learning-rates", "0.1,0.01", "--strengths", "0.01,0"),
    *("--bo-iterations", "2", "--clml-samples", "3", "--device", "cpu"),
]
MODEL = ["--model", "shared.pictures:small", "--image-size", "28"]


def command(folder, *more, out="out"):
    data = folder / "data"
    if not data.exists():
        image_folder(data, train=10, test=3)
    return ["compare", str(data), *MODEL, "--out", str(folder / out), *FAST, *more]


@pytest.fixture(scope="module")
def finished(tmp_path_factory, forked_workers):
    folder = tmp_path_factory.mktemp("compare")
    choices = ["--train-sizes", "15,18", "--seeds", "1,2", "--methods", "de-elbo,la-clml,map-grid,map-bo"]
    assert main([*command(folder, *choices), "--jobs", "2", "--quiet"]) == 0
    return folder


def test_results_are_written(finished, capsys):
    out = finished / "out"
    rows = list(csv.DictReader((out / "results.csv").open()))
    assert len(rows) == 2 * 2 * 4
    assert {row["method"] for row in rows} == {"de-elbo", "la-clml", "map-grid", "map-bo"}
    assert all(0 <= float(row["balanced_accuracy"]) <= 1 and float(row["seconds"]) > 0 for row in rows)
    runs = {row["method"]: float(row["runs"]) for row in rows}
    assert runs["map-grid"] == runs["la-clml"] == 9
    assert runs["map-bo"] == 3
    text = (out / "results.md").read_text()
    assert "| l2-sp | de-elbo |" in text
    assert "–" in text  # smallest to largest over seeds
    page = (out / "compare.html").read_text()
    assert page.count("<svg") == 2  # one panel for each size
    assert "unfinished" not in page


def test_the_view_in_a_terminal(finished, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    more = ["--train-sizes", "15", "--seeds", "1", "--methods", "map-bo,elbo"]
    records = ["--records", str(finished / "out" / "records")]
    assert main(command(finished, *more, *records, out="view")) == 0
    shown = capsys.readouterr().err
    assert "best so far" in shown
    assert "3 of 3" in shown  # what map-bo had before
    assert "%, final" in shown


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (390, "dark")])
def test_the_page_in_chromium(finished, browser, width, scheme):
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    problems, requests = [], []
    page.on("console", lambda message: problems.append(message.text))
    page.on("request", lambda asked: requests.append(asked.url))
    page.goto((finished / "out" / "compare.html").as_uri())
    assert not problems
    assert all(url.startswith("file:") for url in requests)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    for chart in page.query_selector_all("figure svg"):
        assert 250 < chart.bounding_box()["width"] <= width
    ink = page.evaluate("getComputedStyle(document.querySelector('svg text')).fill.match(/\\d+/g).map(Number)[0]")
    assert (ink > 150) == (scheme == "dark")
    page.close()


def test_nothing_is_repeated(finished, capsys):
    before = (finished / "out" / "records" / "journal.jsonl").read_text()
    choices = ["--train-sizes", "15,18", "--seeds", "1,2", "--methods", "map-grid,de-elbo", "--quiet"]
    assert main(command(finished, *choices)) == 0
    shared = [
        "--records",
        str(finished / "out" / "records"),
        "--methods",
        "map-bo",
        "--train-sizes",
        "18",
        "--seeds",
        "2",
    ]
    assert main(command(finished, *shared, "--quiet", out="other")) == 0
    assert (finished / "out" / "records" / "journal.jsonl").read_text() == before
    rows = list(csv.DictReader((finished / "other" / "results.csv").open()))
    assert [row["method"] for row in rows] == ["map-bo"]


def test_kappas_and_texts(tmp_path):
    data = tmp_path / "rows"
    data.mkdir()
    text_table(data / "train.csv", 24)
    text_table(data / "test.csv", 8)
    model = f"hf:{tiny_bert(tmp_path / 'bert')}"
    out = tmp_path / "out"
    choices = ["--methods", "de-elbo,la-lml", "--kappas", "1,D/N", "--quiet"]
    assert main(["compare", str(data), "--model", model, "--out", str(out), *FAST, *choices]) == 0
    rows = list(csv.DictReader((out / "results.csv").open()))
    assert [row["method"] for row in rows] == ["de-elbo", "de-elbo", "la-lml"]
    kappas = [float(row["kappa"]) for row in rows[:2]]
    assert kappas[0] == 1
    assert kappas[1] > 10
    assert (out / "compare.html").read_text().count("What kappa does") == 1
    assert "kappa D/N" in (out / "results.md").read_text()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--methods", "map"], "--methods map, but it is one of"),
        (["--methods", "elbo,elbo"], "twice"),
        (["--train-sizes", "999"], "999"),
        (["--train-sizes", "many"], "--train-sizes many: write numbers"),
        (["--kappas", "x"], "--kappas x, but it is a number, D/N or sweep"),
        (["--engine", "spark"], "--engine spark, but it is one of local, ray"),
        (["--jobs", "0"], "--jobs 0, but it must be at least 1"),
        (["--cpus", "0"], "a run needs some CPU"),
        (["--priors", "per-layer"], "too many variances for methods that search for them"),
        (["--strengths", "-1"], "strengths"),
        (["--device", "gpu"], "there is cpu"),
        (["--model", "timm:nonsense"], "nonsense"),
        (["--steps", "0"], "steps"),
        (["--precision", "half"], "no, fp16 or bf16"),
        (["--head", "tail"], 'head "tail" names no parameter'),
        (["--priors", "ptyl:none.safetensors"], "none.safetensors"),
        (["--seeds", "1,1"], "twice"),
    ],
)
def test_bad_input_is_one_line(tmp_path, capsys, more, message):
    assert main(command(tmp_path, *more)) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert not (tmp_path / "out" / "records").exists()


def test_a_folder_among_the_data_is_refused(tmp_path, capsys):
    command(tmp_path)
    assert main(command(tmp_path, "--records", str(tmp_path / "data" / "train" / "records"))) == 2
    assert "among the data" in capsys.readouterr().err


def test_several_models_may_be_called_so(tmp_path, capsys):
    words = ["compare", str(tmp_path / "nowhere"), "--models", "timm:a,timm:b", "--out", str(tmp_path / "out")]
    assert main(words) == 2
    assert "nowhere" in capsys.readouterr().err


def test_storage_that_fails_is_named(tmp_path, capsys):
    (tmp_path / "file").write_text("x")
    assert main(command(tmp_path, "--methods", "elbo", "--records", str(tmp_path / "file"))) == 2
    assert "Not a directory" in capsys.readouterr().err


def test_no_cluster_at_the_address(tmp_path, capsys):
    assert main(command(tmp_path, "--engine", "ray", "--ray-address", "127.0.0.1:1")) == 2
    assert "no Ray cluster at 127.0.0.1:1" in capsys.readouterr().err


def test_a_folder_of_something_else_and_data_without_a_test(tmp_path, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("x")
    assert main(command(tmp_path)) == 2
    assert "something else" in capsys.readouterr().err
    image_folder(tmp_path / "untested", train=4, test=0)
    assert (
        main(
            ["compare", str(tmp_path / "untested"), "--model", "shared.pictures:small", "--out", str(tmp_path / "new")]
        )
        == 2
    )
    assert "needs a test set" in capsys.readouterr().err


def test_killed_at_random_moments(tmp_path):
    """No run is done twice, and no record is damaged; the workers die with their parent."""
    choices = ["--methods", "elbo,map-grid", "--train-sizes", "18", "--jobs", "2", "--steps", "100"]
    words, records, generator = command(tmp_path, *choices), tmp_path / "out" / "records", random.Random(0)
    for _ in range(2):
        lines, process = _lines(records), processes.command(words)
        assert processes.wait_until(lambda lines=lines: _lines(records) > lines, process)  # until something begins
        time.sleep(generator.uniform(0, 1))
        assert process.kill() == -signal.SIGKILL
    assert processes.command(words).wait() == 0
    ended, lines = journal(records)
    assert max(ended.values()) == 1
    finished = without_times(records)
    assert len(finished) == 10
    assert all(record["key"] == key for key, record in finished.items())
    assert not list((records / "work").iterdir())
    for i, line in enumerate(lines):  # what had ended was never begun again
        assert line["event"] == "ended" or line["key"] not in {x["key"] for x in lines[:i] if x["event"] == "ended"}


def _lines(records):
    path = records / "journal.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_ctrl_c_keeps_what_is_finished(tmp_path):
    words, log = command(tmp_path, "--methods", "elbo,la-lml", "--steps", "400"), tmp_path / "log"
    process = processes.command(words, log=log)
    assert processes.wait_until(lambda: list((tmp_path / "out" / "records" / "work").glob("*/run.json")), process)
    assert process.kill(signal.SIGINT) == 130
    error = log.read_text()
    assert "the same command continues" in error
    assert "Traceback" not in error
    work = list((tmp_path / "out" / "records" / "work").iterdir())
    assert len(work) == 1  # with the checkpoint of the run that was cut off
    assert json.loads((tmp_path / "out" / "compare.json").read_text())["methods"] == ["elbo", "la-lml"]


def test_options_for_exact_comparison(tmp_path):
    options = ["--methods", "de-elbo,map-grid", "--posterior", "isotropic,diagonal", "--draws", "2", "--retrain", "all"]
    images = ["--per-class", "5", "--resize", "square", "--normalize", "training-set", "--strengths", "0.01"]
    assert main([*command(tmp_path, *options, *images, "--optimizer", "adamw"), "--quiet"]) == 0
    rows = list(csv.DictReader((tmp_path / "out" / "results.csv").open()))
    assert [(row["method"], row["posterior"], row["train_size"]) for row in rows] == [
        ("de-elbo", "isotropic", "15"),
        ("de-elbo", "diagonal", "15"),
        ("map-grid", "", "15"),
    ]
    assert [float(row["runs"]) for row in rows][2] == 3  # two cells and the best one again
    assert "| l2-sp | de-elbo, diagonal posterior |" in (tmp_path / "out" / "results.md").read_text()
    page = (tmp_path / "out" / "compare.html").read_text()
    assert "Lines of map-grid: networks trained again on all examples, with the time for it, as in the paper." in page
    records = [json.loads(path.read_text()) for path in (tmp_path / "out" / "records").glob("*.json")]
    assert len(records) == 6
    assert {record["trial"]["settings"]["optimizer"] for record in records} == {"adamw"}
    assert sorted(record["trial"]["settings"].get("draws", 1) for record in records) == [1, 1, 1, 1, 2, 2]
    assert {record["trial"]["per_class"] for record in records} == {5}
