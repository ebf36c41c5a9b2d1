"""The `>>>` examples in the package's docstrings give what they say."""

import doctest
import importlib
import re
import types
from pathlib import Path

import pytest

import deelbo

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
EXAMPLE = re.compile(r"^\s*>>> ", re.MULTILINE)
SOURCE = Path(deelbo.__file__).parent


def modules_with_examples():
    for path in sorted(SOURCE.rglob("*.py")):
        if EXAMPLE.search(path.read_text()):
            parts = path.relative_to(SOURCE.parent).with_suffix("").parts
            yield ".".join(part for part in parts if part != "__init__")


def run(module):
    """Run a module's examples; return how many there were and what doctest says of those that fail."""
    said, runner = [], doctest.DocTestRunner(optionflags=FLAGS, verbose=False)
    tests = doctest.DocTestFinder().find(module)
    return sum(runner.run(test, out=said.append).attempted for test in tests), "".join(said)


@pytest.mark.parametrize("name", list(modules_with_examples()))
def test_examples(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where an example may write
    module = importlib.import_module(name)
    attempted, failures = run(module)
    assert not failures, failures
    # An example where doctest does not look, such as in a nested function, would never run.
    assert attempted == len(EXAMPLE.findall(Path(module.__file__).read_text()))


def test_an_example_that_is_wrong_is_noticed():
    module = types.ModuleType("wrong", "An example.\n\n>>> 1 + 1\n2\n>>> 1 + 1\n3\n")
    attempted, failures = run(module)
    assert attempted == 2
    assert "Expected:\n    3\nGot:\n    2" in failures
