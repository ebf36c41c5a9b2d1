"""docs/architecture.md is true: it names every file, and no layer imports from one below it."""

import ast
import re
from pathlib import Path

import deelbo

SOURCE = Path(deelbo.__file__).parent
PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
TABLE = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")][2:]
ONE_FILE_EACH = ("cli", "compare/strategies", "compare/engines")


def ranks():
    """Return the row of each module and package in the table."""
    found = {}
    for row, line in enumerate(TABLE):
        _, _, where, what, _ = re.split(r"(?<!\\)\|", line)
        for name in [*re.findall(r"`(\w+)(?:\.py|/)`", where), *re.findall(r"`(\w+)\.py`", what)]:
            if (SOURCE / f"{name}.py").exists() or (SOURCE / name).is_dir():
                found.setdefault(name, row)
    return found


def imported(path):
    """Yield the modules and packages of ours that a file imports when it runs."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body.clear()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("deelbo."):
            yield node.module.split(".")[1]


def test_no_layer_imports_from_one_below():
    rank = ranks()
    for path in SOURCE.rglob("*.py"):
        own = path.relative_to(SOURCE).with_suffix("").parts[0]
        if own not in ("__init__", "__main__"):
            below = [name for name in imported(path) if rank[name] > rank[own]]
            assert not below, f"{path.relative_to(SOURCE)} imports {below}"


def test_every_file_is_named():
    page = PAGE.read_text()
    for path in SOURCE.rglob("*.py"):
        place = path.relative_to(SOURCE)
        if path.name != "__init__.py" and str(place.parent) not in ONE_FILE_EACH:
            assert f"`{path.name}`" in page, place
