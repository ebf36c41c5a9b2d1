"""`deelbo prior`, and fine-tuning with what it made."""

import json
import signal

import pytest
import torch

from deelbo.cli import main
from deelbo.swag import load_source_posterior
from shared import processes
from shared.pictures import Small, image_folder, text_table, tiny_bert

pytestmark = pytest.mark.slow

FAST = ["--steps", "24", "--batch-size", "6", "--rank", "4"]
MODEL = ["--model", "shared.pictures:small", "--image-size", "28"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prior")
    data = image_folder(folder / "data")
    assert main(["prior", str(data), *MODEL, "--out", str(folder / "prior.safetensors"), *FAST]) == 0
    return folder


def test_file_says_how_it_was_made(made):
    posterior = load_source_posterior(made / "prior.safetensors")
    assert posterior.notes["settings"]["model"] == "shared.pictures:small"
    assert posterior.notes["settings"]["classes"] == ["blue", "green", "red"]
    assert posterior.notes["settings"]["steps"] == 24
    assert posterior.rank == 4
    assert set(posterior.mean) == {"body.0.weight", "body.0.bias", "body.1.weight", "body.1.bias"}
    assert not list(made.glob("*.part"))


def test_finetune_with_it(made, capsys):
    run = made / "run"
    prior = f"ptyl:{made / 'prior.safetensors'}"
    command = [
        "finetune",
        str(made / "data"),
        *MODEL,
        "--prior",
        prior,
        "--rank",
        "3",
        "--diagonal",
        "0.01",
        "--out",
        str(run),
    ]
    fast = ["--steps", "20", "--batch-size", "6", "--learning-rates", "0.01", "--device", "cpu"]
    assert main([*command, *fast]) == 0
    stored = json.loads((run / "run.json").read_text())
    assert stored["settings"]["prior"] == prior
    assert stored["settings"]["diagonal"] == 0.01
    assert len(stored["about"]["prior_file"]) == 16
    capsys.readouterr()
    assert main([*command[:-1], str(made / "other"), "--prior", "ptyl:nowhere", *fast]) == 2
    assert "no source posterior at nowhere" in capsys.readouterr().err
    assert main([*command[:-1], str(made / "other"), "--rank", "9", *fast]) == 2
    assert "--rank 9, but the source posterior has 4 deviations" in capsys.readouterr().err
    assert not (made / "other").exists()


def test_texts(tmp_path):
    data = text_table(tmp_path / "rows.csv", rows=24)
    out = tmp_path / "prior.safetensors"
    assert (
        main(["prior", str(data), "--model", f"hf:{tiny_bert(tmp_path / 'bert')}", "--out", str(out), "--half", *FAST])
        == 0
    )
    assert next(iter(load_source_posterior(out).deviations.values())).dtype == torch.bfloat16


def test_released(tmp_path, capsys):
    network = Small(2)
    size = sum(p.numel() for n, p in network.named_parameters() if not n.startswith("fc"))
    for part, value in (("mean", torch.zeros(size)), ("variance", torch.ones(size)), ("covmat", torch.ones(5, size))):
        torch.save(value, tmp_path / f"net_{part}.pt")
    out = tmp_path / "prior.safetensors"
    command = ["prior", "--released", str(tmp_path / "net"), "--model", "shared.pictures:small", "--out", str(out)]
    assert main(command) == 0
    assert load_source_posterior(out).rank == 5
    assert main(command) == 2
    assert "exists already" in capsys.readouterr().err


def test_killed_and_started_again(made, tmp_path, capsys):
    out = tmp_path / "prior.safetensors"
    command = ["prior", str(made / "data"), *MODEL, "--out", str(out)]
    command += ["--steps", "200", "--batch-size", "6", "--rank", "4", "--checkpoint-seconds", "0"]
    process = processes.command(command)
    assert processes.wait_until(out.with_name(out.name + ".part").exists, process)
    assert process.kill() == -signal.SIGKILL
    assert not out.exists()
    assert main([*command, "--no-flip"]) == 2
    assert "flip: True -> False" in capsys.readouterr().err
    log, whole = tmp_path.with_suffix(".log"), tmp_path.with_suffix(".safetensors")
    assert processes.command(command, log=log).wait() == 0
    assert "continuing from" in log.read_text()
    left = {path.name for path in tmp_path.iterdir()}
    # safetensors itself leaves a file like .tmpK24dTi when it is killed while it writes.
    assert {name for name in left if not name.startswith(".tmp")} == {"prior.safetensors"}
    assert processes.command([*command, "--out", str(whole)]).wait() == 0
    first, second = load_source_posterior(out), load_source_posterior(whole)
    assert all(torch.equal(first.mean[n], second.mean[n]) for n in first.mean)
    assert all(torch.equal(first.deviations[n], second.deviations[n]) for n in first.mean)


def test_a_file_that_appears_meanwhile_is_not_overwritten(made, tmp_path, monkeypatch, capsys):
    import deelbo.jobs.prior as module

    out, collect = tmp_path / "prior.safetensors", module.collect

    def meanwhile(*arguments, **options):
        out.write_text("something of the user's")
        return collect(*arguments, **options)

    monkeypatch.setattr(module, "collect", meanwhile)
    assert main(["prior", str(made / "data"), *MODEL, "--out", str(out), *FAST]) == 0
    assert out.read_text() == "something of the user's"
    assert "ptyl:" + str(tmp_path / "prior-new.safetensors") in capsys.readouterr().out
    assert load_source_posterior(tmp_path / "prior-new.safetensors").rank == 4


def test_refusals(made, tmp_path, capsys):
    data = str(made / "data")
    for arguments, message in (
        ([data], "--model is missing"),
        (["--model", "shared.pictures:small"], "data of the source task"),
        ([data, *MODEL, "--out", str(tmp_path / "prior.pt")], "must end in .safetensors"),
        ([data, *MODEL, "--out", str(made / "prior.safetensors")], "exists already"),
        ([data, *MODEL, "--out", str(tmp_path / "a.safetensors"), "--every", "9999"], "fewer than two snapshots"),
        ([data, *MODEL, "--out", str(tmp_path / "a.safetensors"), "--head", "nose"], "names no parameter"),
        ([data, *MODEL, "--out", str(tmp_path / "a.safetensors"), "--device", "gpu"], "there is cpu"),
        (
            [
                "--released",
                str(tmp_path / "x"),
                "--model",
                "shared.pictures:small",
                "--out",
                str(tmp_path / "a.safetensors"),
            ],
            "x_mean.pt",
        ),
    ):
        assert main(["prior", *arguments]) == 2
        assert message in capsys.readouterr().err
    diverging = [data, *MODEL, "--out", str(tmp_path / "a.safetensors"), "--learning-rate", "1e30", *FAST]
    assert main(["prior", *diverging]) == 1
    assert "smaller learning rate" in capsys.readouterr().err
    assert main(["prior", *diverging[:-2], "--learning-rate", "0.01", "--rank", "4"]) == 0  # as it was told
    command = capsys.readouterr().out.split("use it: deelbo ")[1].split()
    assert command[command.index("--rank") + 1] == "4"
