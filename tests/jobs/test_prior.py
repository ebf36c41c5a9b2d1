"""The posterior of a source task, without the command line."""

import pytest
import torch

from deelbo.events import Note, SourceStepTaken
from deelbo.jobs.prior import collect_job, convert_job
from deelbo.priors import load_source_posterior
from deelbo.specs import DataSpec, ModelSpec
from shared.pictures import image_folder

MODEL = ModelSpec("shared.pictures:small", image_size=28)
SETTINGS = {"steps": 12, "rank": 3}


def collect(data, out, listener=lambda event: None, **settings):
    options = {**SETTINGS, **settings}
    return collect_job(DataSpec(str(data)), MODEL, options, out, batch_size=6, device="cpu", listener=listener)


def test_the_file_and_what_is_said_of_it(tmp_path):
    data, out, seen = image_folder(tmp_path / "data"), tmp_path / "new" / "prior.safetensors", []
    posterior, where = collect(data, out, seen.append)
    assert where == out
    again = load_source_posterior(out)
    assert again.rank == posterior.rank == 3
    assert all(torch.equal(again.mean[name], posterior.mean[name]) for name in posterior.mean)
    notes = again.notes["settings"]
    assert (notes["task"], notes["num_data"], notes["batch_size"], notes["steps"]) == ("classification", 18, 6, 12)
    assert sum(isinstance(event, SourceStepTaken) for event in seen) == 12
    assert "18" in next(event.text for event in seen if isinstance(event, Note))
    assert [path.name for path in out.parent.iterdir()] == [out.name]


def test_a_file_that_appears_meanwhile_stays(tmp_path):
    data, out = image_folder(tmp_path / "data"), tmp_path / "prior.safetensors"

    def meanwhile(event):
        if isinstance(event, SourceStepTaken) and event.step == 5:
            out.write_text("something of the user's")

    _, where = collect(data, out, meanwhile)
    assert out.read_text() == "something of the user's"
    assert where == tmp_path / "prior-new.safetensors"
    assert load_source_posterior(where).rank == 3


def test_places_are_checked_before_anything_is_read(tmp_path):
    taken = tmp_path / "taken.safetensors"
    taken.touch()
    for out, error, message in (
        (taken, FileExistsError, "exists already; choose another name"),
        (tmp_path / "prior.pt", ValueError, r"must end in \.safetensors"),
    ):
        with pytest.raises(error, match=message):
            collect(tmp_path / "none", out)
        with pytest.raises(error, match=message):
            convert_job("x", "shared.pictures:small", None, out)


def test_wrong_devices_are_refused_before_anything_is_read(tmp_path):
    with pytest.raises(ValueError, match="device='gpu'"):
        collect_job(
            DataSpec(str(tmp_path / "none")), MODEL, SETTINGS, tmp_path / "a.safetensors", batch_size=6, device="gpu"
        )
