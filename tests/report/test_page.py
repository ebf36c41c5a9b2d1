"""The report in a real browser: it draws, fits phone and desktop, follows light and dark, and asks for nothing else."""

import csv
import json

import pytest

import deelbo
from deelbo.jobs.finetune import finetune_job
from deelbo.report import write_report
from deelbo.run_folder import RunFolder
from deelbo.specs import DataSpec, ModelSpec
from deelbo.training.device import Execution
from shared.pictures import image_folder, text_table, tiny_bert

pytestmark = pytest.mark.slow

FAST = {"steps": 12, "batch_size": 6, "learning_rates": (0.1, 0.01), "samples": 2}


def train(data, model, settings, out, **options):
    data_spec, model_spec = DataSpec(str(data), **options), ModelSpec(model, image_size=None if "hf:" in model else 28)
    return finetune_job(data_spec, model_spec, settings, out, execution=Execution("cpu"))


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    train(image_folder(folder / "data"), "shared.pictures:small", FAST, folder / "my <run>")
    return folder / "my <run>"


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    data = folder / "data"
    data.mkdir()
    text_table(data / "train.csv")
    text_table(data / "test.csv", rows=6)
    (data / "test.csv").write_text((data / "test.csv").read_text() + "<script>document.title='bad'</script>,money\n")
    train(data, f"hf:{tiny_bert(folder / 'bert')}", {**FAST, "learning_rates": (1e-6,)}, folder / "run")
    return folder / "run"


def listed(folder, header, row_of):
    """Images of `image_folder` with a table of targets beside them."""
    image_folder(folder)
    for part in ("train", "test"):
        images = sorted((folder / part).glob("*/*.png"))
        rows = [(image.relative_to(folder / part), *row_of(i)) for i, image in enumerate(images)]
        with (folder / part / "targets.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("file", *header), *rows])
    return folder


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("numbers")
    data = listed(folder / "data", ("a number with a <long> name", "far"), lambda i: (i / 1e7, 1e9 + i))
    train(data, "shared.pictures:small", FAST, folder / "run")
    return folder / "run"


@pytest.fixture(scope="module")
def labels(tmp_path_factory):
    folder = tmp_path_factory.mktemp("labels")
    names = ["antidisestablishmentarianism", "b", "c", "d"]
    data = listed(folder / "data", ("tags",), lambda i: ("|".join([*names[i % 4 : 3], "e"]),))
    train(data, "shared.pictures:small", FAST, folder / "run")
    return folder / "run"


CHARTS = {"images": 4, "texts": 3, "numbers": 8, "labels": 4}


@pytest.mark.parametrize("kind", CHARTS)
@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_in_chromium(browser, kind, width, scheme, request):
    run = request.getfixturevalue(kind)
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    problems, requests = [], []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda asked: requests.append(asked.url))
    page.goto((run / "report.html").as_uri())
    assert not problems
    assert all(url.startswith(("file:", "data:")) for url in requests)
    assert page.title() == f"{run.name} · deelbo"
    assert page.evaluate("document.documentElement.scrollWidth") == width
    brightness = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]")
    assert (brightness < 60) == (scheme == "dark")
    charts = page.query_selector_all("figure svg")
    assert len(charts) == CHARTS[kind]
    for chart in charts:
        box = chart.bounding_box()
        assert 250 < box["width"] <= width
        assert box["height"] > 150
    ink = page.evaluate("getComputedStyle(document.querySelector('svg text')).fill.match(/\\d+/g).map(Number)[0]")
    assert (ink > 150) == (scheme == "dark")
    smallest = page.evaluate(
        "Math.min(...[...document.querySelectorAll('svg text')].map(t => t.getBoundingClientRect().height))"
    )
    assert smallest >= 9
    pictures = page.evaluate("[...document.images].every(i => i.complete && i.naturalWidth > 0)")
    assert pictures
    page.close()


def test_pages_speak_of_their_task(numbers, labels):
    of_numbers, of_labels = ((run / "report.html").read_text() for run in (numbers, labels))
    for words in ("2 numbers (a number with a &lt;long&gt; name, far)", "root mean squared error", "Largest errors"):
        assert words in of_numbers
    assert "100000001" in of_numbers.split("Largest errors")[1]  # digits that matter are not rounded away
    for words in ("mean average precision", "Reliability over all labels", "Most confident wrong labels"):
        assert words in of_labels
    for page in (of_numbers, of_labels):
        assert "accuracy" not in page.lower()
        assert "confusion" not in page.lower()


def test_without_a_test_set_and_with_one_later(images, tmp_path):
    folder = image_folder(tmp_path / "data", test=0)
    _, metrics = train(folder, "shared.pictures:small", FAST, tmp_path / "run")
    assert metrics is None
    text = (tmp_path / "run" / "report.html").read_text()
    assert "This run has no test set" in text
    write_report(RunFolder(tmp_path / "run"), json.loads((images / "assessment.json").read_text()))
    assert "Confusion matrix" in (tmp_path / "run" / "report.html").read_text()


def test_report_of_map_and_of_a_run_made_in_python(tmp_path):
    import torch
    from torch.utils.data import TensorDataset

    data = TensorDataset(torch.randn(20, 5), torch.randint(3, (20,)))
    network = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Linear(4, 3))
    options = {**FAST, "method": "map", "prior_variances": {"backbone": 1.0, "head": 1.0}, "device": "cpu"}
    deelbo.finetune(network, data, "1", out=tmp_path / "run", **options)
    assert "prior / N" in write_report(RunFolder(tmp_path / "run")).read_text()
