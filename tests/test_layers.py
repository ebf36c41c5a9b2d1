"""docs/architecture.md is true: it names every file, no layer imports from one below it; tests mirror the package."""

import ast
import re
from pathlib import Path

import deelbo

SOURCE = Path(deelbo.__file__).parent
PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
TABLE = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")][2:]
ONE_FILE_EACH = ("cli", "compare/strategies", "compare/engines")
# What a package's own file does, and what is too small for a file of tests, is tested elsewhere.
TESTED_IN = {
    "cli/__init__.py": "cli/test_errors.py",
    "compare/strategies/__init__.py": "compare/strategies/test_base.py",
    "compare/strategies/la_lml.py": "compare/strategies/test_base.py",
    "data/__init__.py": "data/test_folders.py",
    "models/__init__.py": "models/test_models.py",
    "reproduce/__init__.py": "reproduce/test_reproduce.py",
}


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


def has_logic(path):
    """Tell whether a function or method of a file has a body beyond a docstring."""

    def does_something(node):
        return not (isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)))

    functions = [
        n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    return any(does_something(node) for function in functions for node in function.body)


def test_every_file_with_logic_has_a_file_of_tests():
    needed = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if has_logic(path)}
    assert set(TESTED_IN) <= needed
    for name in sorted(needed):
        place = Path(name)
        mirror = TESTED_IN.get(name, str(place.with_name(f"test_{place.name.removeprefix('_')}")))
        path = Path(__file__).parent / mirror
        assert path.is_file(), f"{name} has no {mirror}"
        names = [node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]
        assert any(found.startswith("test_") for found in names), f"{mirror} has no test"


def test_more_than_five_arguments_go_by_keyword():
    """Commands are called by typer, by name; the callbacks of a pass over the weights by position, and nobody else."""
    for path in SOURCE.rglob("*.py"):
        if path.parent.name == "cli":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name != "task":
                names = [a.arg for a in node.args.posonlyargs + node.args.args if a.arg not in ("self", "cls")]
                assert len(names) <= 5, f"{path.relative_to(SOURCE)}: {node.name} takes {len(names)} by position"
