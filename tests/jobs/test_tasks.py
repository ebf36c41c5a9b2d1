"""Numbers and several labels from the command line, from data to predictions, export and report."""

import csv
import json
import os
import random
import signal

import pytest
import torch
import transformers
from safetensors.torch import load_file

import deelbo
from deelbo import events
from deelbo.cli import main
from deelbo.jobs.finetune import finetune_job
from deelbo.specs import DataSpec, ModelSpec
from deelbo.training.batches import fetch
from deelbo.training.device import Execution
from shared.pictures import WORDS, picture, small, tiny_bert
from shared.processes import command, wait_until

ALL_WORDS = " ".join(WORDS.values()).split()
FAST = ["--steps", "3", "--batch-size", "8", "--samples", "1", "--learning-rates", "0.01", "--device", "cpu"]


def texts(number, seed=0):
    choose = random.Random(seed)
    return [" ".join(choose.choices(ALL_WORDS, k=choose.randint(2, 5))) for _ in range(number)]


def size(text):
    return 0.25 + 1.5 * sum(ALL_WORDS.index(word) for word in text.split())


def topics(text):
    return [name for name, words in WORDS.items() if len({*words.split()} & {*text.split()}) > 1]


def write_csv(path, header, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def listed_images(folder, header, row_of, number=12):
    """Images with a table of targets beside them, some in a folder below."""
    rows = []
    for i in range(number):
        name = f"below/{i}.png" if i % 4 == 0 else f"{i}.png"
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        picture(("blue", "green", "red")[i % 3], i).save(folder / name)
        rows.append((name, *row_of(i)))
    write_csv(folder / "targets.csv", ("file", *header), rows)
    return folder


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return f"hf:{tiny_bert(tmp_path_factory.mktemp('model') / 'bert')}"


@pytest.fixture
def run(capsys):
    def run(*words):
        """Return exit code, output and errors of a command."""
        code = main([str(word) for word in words])
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return code, said.out, said.err

    return run


@pytest.fixture
def refused(run):
    def refused(*words):
        code, _, err = run(*words)
        assert code == 2
        return next(line for line in err.splitlines() if line.startswith("deelbo: "))

    return refused


# ---- what the labels of a table stand for ----


def read(path, **options):
    return DataSpec(str(path), **options).read()


@pytest.mark.parametrize(("yes", "no"), [("1", "0"), ("1.0", "0.0"), ("True", "False"), ("true", "false")])
def test_a_column_for_each_label(tmp_path, yes, no):
    rows = [(text, yes if i % 2 else no, yes if i % 3 else no) for i, text in enumerate(texts(6))]
    data = read(write_csv(tmp_path / "t.csv", ("text", "cat", "dog"), rows), label_column="cat,dog")
    assert data.describe() == "multilabel: 6 texts, 2 labels"
    assert data.train.labels == [[i % 2, int(i % 3 > 0)] for i in range(6)]


@pytest.mark.parametrize("hole", ["n/a", "nan", "", "inf"])
def test_numbers_with_holes_are_no_classes(tmp_path, hole):
    rows = [(text, hole if i % 4 == 1 else size(text)) for i, text in enumerate(texts(12))]
    path = write_csv(tmp_path / "t.csv", ("text", "label"), rows)
    with pytest.raises(ValueError, match=rf"row 2: .*{hole or 'no label'}.* skip_bad=True leaves such rows out \(3\)"):
        read(path)
    data = read(path, skip_bad=True)
    assert (data.targets.task, len(data.train), len(data.skipped)) == ("regression", 9, 3)
    assert any("3 rows left out; the first is row 2" in note for note in data.notes)


def test_names_with_some_numbers_are_classes(tmp_path):
    rows = [(text, ("1", "2", "other")[i % 3]) for i, text in enumerate(texts(9))]
    assert read(write_csv(tmp_path / "t.csv", ("text", "label"), rows)).targets.names == ["1", "2", "other"]


def test_examples_without_any_label_are_counted(tmp_path):
    lines = [json.dumps({"text": text, "label": topics(text)}) for text in texts(12)]
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    data = read(tmp_path / "t.jsonl")
    bare = sum(not topics(text) for text in texts(12))
    assert data.targets.names == ["money", "sport"]
    assert 0 < bare < 12
    assert f"{bare} of 12 training examples have no label at all" in data.notes


def test_columns_that_cannot_be_labels(tmp_path):
    path = write_csv(tmp_path / "t.csv", ("text", "a", "b"), [(text, 1.5, 2) for text in texts(4)])
    for columns in ("a,,b", "a,a"):
        with pytest.raises(ValueError, match="write different names with commas"):
            read(path, label_column=columns)
    with pytest.raises(ValueError, match="label_column=text is the column of the text too"):
        read(path, label_column="text,a")
    with pytest.raises(ValueError, match=r"row 1: the label '1\.5' is not 0 or 1, which multilabel needs; no row"):
        read(path, label_column="a,b", task="multilabel")


def test_targets_beside_images(tmp_path):
    folder = listed_images(tmp_path / "photos", ("value",), lambda i: (i / 2,))
    (folder / "1.png").unlink()
    picture("red").save(folder / "extra.png")
    with pytest.raises(ValueError, match=r"names images that are not there: .*1\.png; skip_bad=True"):
        read(folder)
    data = read(folder, skip_bad=True)
    assert data.describe() == "regression: 11 images, one number (value)"
    assert any("1 image not in targets.csv left out, such as extra.png" in note for note in data.notes)


# ---- messages ----


def test_wrong_data_are_one_clear_line(tmp_path, bert, refused):
    numbers = write_csv(tmp_path / "n.csv", ("text", "label"), [(text, size(text)) for text in texts(12)])
    names = write_csv(tmp_path / "c.csv", ("text", "label"), [(text, "ab"[i % 2]) for i, text in enumerate(texts(12))])
    same = write_csv(tmp_path / "s.csv", ("text", "label"), [(text, 2.5) for text in texts(6)])
    end = ["--model", bert, *FAST, "--out", tmp_path / "run"]
    line = refused("finetune", numbers, "--class-weights", "balanced", *end)
    assert line == "deelbo: --class-weights balanced: regression has no classes to balance"
    assert "label 'a' is not a finite number" in refused("finetune", names, "--task", "regression", *end)
    assert "--task guess, but it is one of" in refused("finetune", names, "--task", "guess", *end)
    assert "contradicts" in refused("finetune", names, "--task", "regression", "--multilabel", *end)
    assert "all training targets are the same number" in refused("finetune", same, *end)
    line = refused("finetune", numbers, "--test-fraction", "0.001", *end)
    assert (
        line
        == "deelbo: --test-fraction 0.001 would hold out 0 of 12 examples: test set and training set need at least 1"
    )
    assert "choose between 1 and 12" in refused("finetune", numbers, "--train-size", "0", *end)
    assert not (tmp_path / "run").exists()
    folder = tmp_path / "parts"
    write_csv(folder / "train.csv", ("text", "label"), [("ball", "a|b"), ("team", "b"), ("goal", "")])
    write_csv(folder / "test.csv", ("text", "label"), [("ball", "|".join("cdefgh"))])
    assert "training never saw: c, d, e, f and 2 more" in refused("finetune", folder, *end)


# ---- from data to predictions ----


@pytest.mark.slow
def test_numbers_from_table_to_export(tmp_path, bert, run, refused):
    rows = [(text, size(text), 1e6 + len(text)) for text in texts(24)]
    table, out = write_csv(tmp_path / "t.csv", ("text", "a", "b"), rows), tmp_path / "run"
    words = ["finetune", table, "--label-column", "a,b", "--test-fraction", "0.25", "--model", bert, *FAST]
    code, said, err = run(*words, "--out", out)
    assert code == 0
    assert err.splitlines()[0] == "regression: 18 texts, 2 numbers (a, b), 6 to test on"
    assert "recognised as regression: several label columns" in err
    assert "test root mean squared error" in said
    assert "learned noise" in said

    other = write_csv(tmp_path / "other.csv", ("text", "a", "b"), rows)
    assert run("evaluate", out, other, "--json")[1] == run("evaluate", out, other, "--label-column", "b,a", "--json")[1]
    assert "1 number for each example, but the run predicts 2: a, b" in refused(
        "evaluate", out, table, "--label-column", "a"
    )
    new = write_csv(tmp_path / "new.csv", ("id", "text", "std_a"), [("x", "ball team", "mine")])
    means, stds = deelbo.load(out).predict(["ball team"])
    line = run("predict", out, new)[1].split("\t")
    assert line[0] == "x"
    assert line[1].startswith("a ")
    assert float(line[2].split()[1]) == pytest.approx(means[0, 1].item(), abs=stds[0, 1].item() / 50)
    row = json.loads(run("predict", out, new, "--json", "--samples", "2")[1])[0]
    assert row["std_a"] == "mine"
    assert row["deelbo_predicted_a"] == pytest.approx(means[0, 0].item(), rel=1e-2)
    assert run("predict", out, new, "--out", tmp_path / "p.csv")[0] == 0
    assert (tmp_path / "p.csv").read_text().startswith("id,text,std_a,deelbo_predicted_a,deelbo_std_a,deelbo_predicted")
    assert run("report", out, "--data", table)[0] == 0

    assert run("export", out, tmp_path / "plain")[0] == 0
    network = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "plain").eval()
    tokens = transformers.AutoTokenizer.from_pretrained(tmp_path / "plain")(["ball team"], return_tensors="pt")
    assert network.config.problem_type == "regression"
    torch.testing.assert_close(network(**tokens).logits.double(), means, rtol=1e-5, atol=0.0)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["labels", "columns"])
def test_labels_from_table_to_export(tmp_path, bert, run, form):
    names = ["money", "sport"]
    if form == "labels":
        header, rows = ("text", "label"), [(text, "|".join(topics(text))) for text in texts(24)]
    else:
        header, rows = ("text", *names), [(text, *(name in topics(text) for name in names)) for text in texts(24)]
    table, out = write_csv(tmp_path / "t.csv", header, rows), tmp_path / "run"
    words = ["--label-column", ",".join(header[1:]), "--test-fraction", "0.25", "--class-weights", "balanced"]
    code, said, err = run("finetune", table, *words, "--model", bert, *FAST, "--out", out)
    assert code == 0
    assert err.splitlines()[0] == "multilabel: 18 texts, 2 labels, 6 to test on"
    assert "test mean average precision" in said
    probabilities = deelbo.load(out).predict(["ball team"])
    row = json.loads(run("predict", out, write_csv(tmp_path / "n.csv", ("text",), [("ball team",)]), "--json")[1])[0]
    assert [row["probabilities"][name] for name in names] == pytest.approx(probabilities[0].tolist())
    assert row["predicted"] == "|".join(name for name in names if row["probabilities"][name] > 0.5)
    line = run("predict", out, tmp_path / "n.csv")[1].rstrip("\n").split("\t")
    assert [part.split()[0] for part in line[1:]] == (row["predicted"].split("|") if row["predicted"] else ["(no"])
    assert set(json.loads(run("evaluate", out, table, "--json")[1])) == {"mean_average_precision", "f1", "nll", "ece"}
    assert run("export", out, tmp_path / "plain")[0] == 0
    network = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "plain").eval()
    tokens = transformers.AutoTokenizer.from_pretrained(tmp_path / "plain")(["ball team"], return_tensors="pt")
    torch.testing.assert_close(network(**tokens).logits.double().sigmoid(), probabilities, rtol=1e-5, atol=0.0)


@pytest.mark.slow
def test_numbers_of_images_to_a_plain_network(tmp_path, run):
    folder = tmp_path / "photos"
    for part in ("train", "test"):
        listed_images(folder / part, ("x", "y"), lambda i: (100 + i, i % 3 / 1e6))
    picture("red").save(tmp_path / "one.png")
    words = ["finetune", folder, "--model", "shared.pictures:small", "--image-size", "28", *FAST]
    code, _, err = run(*words, "--out", tmp_path / "run")
    assert code == 0
    assert err.splitlines()[0] == "regression: 12 images, 2 numbers (x, y), 12 to test on"
    result = deelbo.load(tmp_path / "run")
    means = result.predict([tmp_path / "one.png"]).mean
    assert "e-0" in run("predict", tmp_path / "run", tmp_path / "one.png")[1]  # small numbers are not shown as 0.0000
    assert run("export", tmp_path / "run", tmp_path / "plain")[0] == 0
    network = small(2).eval()
    network.load_state_dict(load_file(tmp_path / "plain" / "model.safetensors"))
    inputs, _ = fetch(result.reader.unlabelled([tmp_path / "one.png"]), [0], torch.device("cpu"))
    torch.testing.assert_close(network(inputs).double(), means, rtol=1e-4, atol=0.0)


# ---- interruptions ----

LONG = {"steps": 80, "batch_size": 6, "learning_rates": (0.1, 0.01, 0.001), "samples": 2}


def train(folder, out, listener=events.ignore, **settings):
    model = ModelSpec("shared.pictures:small", image_size=28)
    spec = DataSpec(str(folder))
    return finetune_job(spec, model, {**LONG, **settings}, out, execution=Execution("cpu"), listener=listener)


def same_files(one, other):
    return all(
        (one / name).read_bytes() == (other / name).read_bytes() for name in ("model.safetensors", "history.csv")
    )


ROWS = {"numbers": (("value",), lambda i: (i / 2,)), "labels": (("tags",), lambda i: ("ab|a|b|"[i % 4 :][:1] + "|c",))}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ROWS)
def test_interrupted_runs_go_on_and_refuse_other_data(tmp_path, kind):
    folder = listed_images(tmp_path / "photos", *ROWS[kind])
    train(folder, tmp_path / "whole")
    seen = []

    def stop(event):
        seen.append(event)
        if sum(isinstance(event, events.StepTaken) for event in seen) == 50:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train(folder, tmp_path / "run", stop)
    with pytest.raises(ValueError, match=r"momentum: 0\.9 -> 0\.5"):
        train(folder, tmp_path / "run", momentum=0.5)
    table = (folder / "targets.csv").read_text()
    (folder / "targets.csv").write_text(table.replace("1.png,0.5", "1.png,0.75").replace("1.png,b", "1.png,a"))
    assert (folder / "targets.csv").read_text() != table
    with pytest.raises(ValueError, match="fingerprint"):
        train(folder, tmp_path / "run")
    (folder / "targets.csv").write_text(table)
    train(folder, tmp_path / "run")
    assert same_files(tmp_path / "run", tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ROWS)
def test_a_killed_command_goes_on_bit_for_bit(tmp_path, kind):
    folder = listed_images(tmp_path / "photos", *ROWS[kind])
    words = ["finetune", str(folder), "--model", "shared.pictures:small", "--image-size", "28", "--device", "cpu"]
    words += ["--steps", "60", "--batch-size", "6", "--learning-rates", "0.1,0.01", "--checkpoint-seconds", "0.01"]
    assert main([*words, "--quiet", "--out", str(tmp_path / "whole")]) == 0
    out = tmp_path / "run"
    process = command([*words, "--out", str(out)])
    assert wait_until(lambda: list(out.glob("checkpoints/learning-rate-*")), process)
    assert process.kill() == -signal.SIGKILL
    assert not (out / "model.safetensors").exists()
    assert main([*words, "--quiet", "--out", str(out)]) == 0
    assert same_files(out, tmp_path / "whole")
