"""What is published: one version everywhere, two dependencies, and workflows that do what the Makefile does."""

import re
import runpy
from pathlib import Path

import yaml

import deelbo

ROOT = Path(__file__).parents[1]
PROJECT = (ROOT / "pyproject.toml").read_text()
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / ".github" / "workflows").glob("*.yml")}


def test_one_version():
    assert 'dynamic = ["version"]' in PROJECT
    assert not re.search(r"^version", PROJECT, re.MULTILINE)
    source = re.search(r'\[tool\.hatch\.version\]\npath = "(.*)"', PROJECT)[1]
    assert f'\n__version__ = "{deelbo.__version__}"\n' in (ROOT / source).read_text()
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == deelbo.__version__
    assert re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1] == deelbo.__version__


def test_the_core_needs_torch_and_safetensors_alone():
    assert re.findall(r'"([\w-]+)>=', re.search(r"^dependencies = (.*)$", PROJECT, re.MULTILINE)[1]) == [
        "torch",
        "safetensors",
    ]


def test_the_example_of_the_bare_environment(capsys):
    """What `make dist` runs there."""
    assert "examples/attach.py" in (ROOT / "Makefile").read_text()
    runpy.run_path(str(ROOT / "examples" / "attach.py"), run_name="__main__")
    assert f"deelbo {deelbo.__version__}" in capsys.readouterr().out


def test_every_version_of_python_is_tested():
    said = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', PROJECT)
    assert WORKFLOWS["tests"]["jobs"]["check"]["strategy"]["matrix"]["python"] == said
    assert f'requires-python = ">={said[0]}"' in PROJECT
    assert f'python_version = "{said[0]}"' in PROJECT  # of mypy


def steps(workflow):
    return [step for job in WORKFLOWS[workflow]["jobs"].values() for step in job["steps"]]


def test_workflows_run_the_makefile():
    ran = {name: [step["run"].split(" #")[0] for step in steps(name) if "run" in step] for name in WORKFLOWS}
    assert ran["tests"] == ["make check"]
    assert ran["docs"] == ["make docs"]
    assert ran["publish"][0] == "make dist"


def test_published_without_a_password():
    publish = WORKFLOWS["publish"]
    assert publish[True] == {"push": {"tags": ["v*"]}}  # YAML reads "on" as true
    assert publish["jobs"]["publish"]["permissions"] == {"id-token": "write"}
    assert publish["jobs"]["publish"]["needs"] == "build"
    assert "secrets." not in (ROOT / ".github" / "workflows" / "publish.yml").read_text()


def test_the_install_page_names_every_extra():
    extras = set(
        re.findall(r"^(\w+) = \[", PROJECT.split("[project.optional-dependencies]")[1].split("[project.")[0], re.M)
    )
    rows = re.findall(r"^\| .* \| (`\w+`(?:, `\w+`)*) \|$", (ROOT / "docs" / "install.md").read_text(), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"\w+", row)}
    assert named == extras - {"all", "docs", "release"}  # parts of `test`, and another name for it
