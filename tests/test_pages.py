"""What the pages show is true: Python blocks run and give what is said, commands exist, links lead somewhere."""

import re
from pathlib import Path

import pytest
import torch
import typer

import deelbo
from deelbo.cli.app import app
from deelbo.compare import STRATEGIES
from shared.pages import (
    FENCED,
    GIVEN,
    PAGES,
    ROOT,
    SHORTER,
    commands,
    inline_commands,
    mentioned_options,
    python_blocks,
)

ELSEWHERE = {"README.md": "test_readme.py", "CONTRIBUTING.md": "test_contributing.py"}  # where these blocks run
WITH_PYTHON = [name for name, text in PAGES.items() if python_blocks(text) and name not in ELSEWHERE]
GROUP = typer.main.get_command(app)
OPTIONS = {option for command in [GROUP, *GROUP.commands.values()] for p in command.params for option in p.opts}
OPTIONS |= {option for command in GROUP.commands.values() for p in command.params for option in p.secondary_opts}
OPTIONS |= {"--help"}
# Pages that may have Python without a fence, and why; nothing of it runs here.
UNFENCED = {"docs/integrations.md": "a library that need not be installed; tests/integrations/ runs it where it is"}
# Options of programs that are not ours, and of benchmarks.
OTHERS = {"--models", "--nproc_per_node"}


@pytest.fixture(autouse=True)
def _registry():
    """Forget afterwards what a block has registered, and end its group of processes."""
    before = dict.fromkeys(STRATEGIES.names())
    yield
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    for name in set(STRATEGIES.names()) - set(before):
        del STRATEGIES._entries[name]


def agree(names):
    """The loop in full and the one with `attach` learn the same; a sharded network is resumed as it was saved."""
    explicit, attached = names["learned"][:2]
    assert all(1e-3 < value < 1 for value in explicit.values())
    assert explicit == pytest.approx(attached, rel=1e-6)
    assert names["objective"].summary() == pytest.approx(names["saved"])


def near_the_truth(names):
    assert names["mean"].shape == (100, 1)
    assert 1.8 < float(names["likelihood"].noise * names["likelihood"].spread) < 3.2  # the noise is 2
    assert (names["mean"][:, 0] - names["y"][100:]).square().mean().sqrt() < 3.2
    inside = (names["low"][:, 0] <= names["y"][100:]) & (names["y"][100:] <= names["high"][:, 0])
    assert inside.float().mean() > 0.75


def registered(names):
    assert "one-strength" in STRATEGIES.names()


def learned(names):
    assert names["result"].evaluate(names["test_set"])["accuracy"] > 0.8


def emphasised(names):
    assert names["objective"].kappa == pytest.approx(418 / 60)


def attached_to_both(names):
    assert names["handle"].objective.prior.variances.keys() == {"backbone", "head"}
    assert names["callback"].objective.prior.variances.keys() == {"backbone", "head"}


CHECKS = {
    "docs/compare.md": registered,
    "docs/first-run.md": learned,
    "docs/integrations.md": attached_to_both,
    "docs/kappa-and-prior.md": emphasised,
    "docs/regression.md": near_the_truth,
    "docs/training-loop.md": agree,
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*pin_memory.*", "ignore::UserWarning")
@pytest.mark.parametrize("page", WITH_PYTHON)
def test_python(page, tmp_path, monkeypatch):
    """The blocks of a page run one after the other, and share their names."""
    monkeypatch.chdir(tmp_path)
    names = {"deelbo": deelbo, "torch": torch, "learned": []}
    replaced = set()
    for number, block in enumerate(python_blocks(PAGES[page])):
        torch.manual_seed(0)
        names |= GIVEN.get(page, {}).get(number, lambda names: {})(names)
        for long, short in SHORTER.get(page, {}).items():
            replaced |= {long} if long in block else set()
            block = block.replace(long, short)
        exec(compile(block, f"{page}, block {number}", "exec"), names)
        if isinstance(names.get("prior"), deelbo.priors.GaussianPrior):
            names["learned"].append(names["prior"].variances)
    assert replaced == set(SHORTER.get(page, {}))
    assert max(GIVEN.get(page, {0: None})) <= number
    CHECKS.get(page, lambda names: None)(names)


def test_no_block_is_forgotten():
    """Blocks that run elsewhere are as many as there, and no block hides behind another name of the language."""
    assert {name: len(python_blocks(PAGES[name])) for name in ELSEWHERE} == {"README.md": 2, "CONTRIBUTING.md": 2}
    for name, text in PAGES.items():
        fences = re.findall(r"^\s*(?:```|~~~)(.*)$", text, re.MULTILINE)
        assert set(fences) <= {"", "python"}, name
        assert len(fences) % 2 == 0, name
        assert len(re.findall(r"^```python$", text, re.MULTILINE)) == len(python_blocks(text)), name
        unfenced = re.findall(r"^    (?:import|from|def|class) .*$", FENCED.sub("", text), re.MULTILINE)
        assert not unfenced or name in UNFENCED, (name, unfenced)


@pytest.mark.parametrize("page", [name for name, text in PAGES.items() if commands(text)])
def test_commands_have_these_options(page):
    for words in commands(PAGES[page]):
        try:
            GROUP.commands[words[0]].make_context(words[0], words[1:])
        except typer.Exit:  # --help and --list
            assert {"--help", "--list"} & set(words)


@pytest.mark.parametrize("page", PAGES)
def test_options_inside_of_sentences(page):
    for name, *words in inline_commands(PAGES[page]):
        known = {option for p in GROUP.commands[name].params for option in (*p.opts, *p.secondary_opts)} | {"--help"}
        assert {word for word in words if word.startswith("--")} <= known, (name, words)
    assert mentioned_options(PAGES[page]) <= OPTIONS | OTHERS


def test_a_wrong_option_is_noticed():
    page = (
        "```\ndeelbo finetune DATA --model M \\\n    --no-such 3 --out RUN [--rank 5]\n```\nand `deelbo predict --up`"
    )
    (words,) = commands(page)
    assert words[-2:] == ["--rank", "5"]
    with pytest.raises(Exception, match="--no-such"):
        GROUP.commands["finetune"].make_context("finetune", words[1:])
    assert inline_commands(page) == [["predict", "--up"]]


def test_scripts_and_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    for name, text in PAGES.items():
        for script in re.findall(r"python ((?:benchmarks|examples|docs)/[\w/]+\.py)", text):
            assert (ROOT / script).is_file(), (name, script)
        for target in re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), (name, target)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    """As on GitHub; `make docs` checks those of the site."""
    for link in re.findall(r"\]\(([^)\s]+)\)", PAGES[page]):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = ((ROOT / page).parent / name).resolve() if name else ROOT / page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


def anchors(page: Path):
    """Return the anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
