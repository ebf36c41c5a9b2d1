"""The list of all entries."""

import json

from deelbo.reproduce import CONTENTS, ENTRIES, LAPTOP, PAPER
from deelbo.reproduce.listing import list_text, needs_text, seconds_of, time_text
from deelbo.reproduce.plan import distinct

HERE = ("cifar10", "pets", "agnews")


def test_every_entry_with_what_it_needs(tmp_path):
    (tmp_path / "tab-2.json").write_text(json.dumps({"made_with": {"scale": "laptop"}}))
    text = list_text(tmp_path, HERE)
    for place in CONTENTS:
        assert f"\n{place.name} " in f"\n{text}"
        assert place.label in text
    assert text.count("made here: no") == len(CONTENTS) - 1
    assert f"made here: yes, at the scale laptop: {tmp_path / 'tab-2'}.md" in text
    assert text.count("on two CPU cores") == len(CONTENTS) + 1


def test_needs():
    assert needs_text(ENTRIES["fig-2"], LAPTOP) == "no data; no weights"
    assert needs_text(ENTRIES["fig-b6"], PAPER) == "News-4; hf:google-bert/bert-base-uncased"
    assert needs_text(ENTRIES["tab-2"], PAPER) == "CIFAR-10; torchvision:resnet50@IMAGENET1K_V1, a file for PTYL"
    assert needs_text(ENTRIES["tab-1"], LAPTOP) == "no data; offline:efficientnet_lite0"


def test_everything_takes_an_evening_on_a_laptop():
    entries = [ENTRIES[place.name] for place in CONTENTS]
    runs = [
        run
        for run in distinct(run for entry in entries for run in entry.trials(LAPTOP))
        if run.dataset in HERE and not run.prior.startswith("PTYL")
    ]
    assert 2 * 3600 < seconds_of(entries, runs, LAPTOP) <= 4 * 3600


def test_times_in_words():
    assert time_text(["fig-1a"], PAPER) == "8 full runs, about 4.4 h on one NVIDIA A100"
    assert time_text(["fig-b6"], PAPER) == "3,336 full runs, 3,336 runs whose time the paper does not tell"
    with_ptyl, without = (time_text(["tab-2"], LAPTOP, HERE, priors) for priors in (("PTYL",), ()))
    assert with_ptyl != without
    assert time_text(["fig-3"], LAPTOP, ("agnews",)) == time_text(["fig-b6"], LAPTOP)
