"""Pages of the site that are not in docs/: a hook of MkDocs, named in mkdocs.yml.

README.md is the first page, CONTRIBUTING.md and CHANGELOG.md are pages too, and one page shows the files of examples/.
Links between them and docs/ are written for GitHub, and changed here to where the pages are on the site.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
# Where a file of the project is on the site; what is below docs/ keeps its name.
PLACES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
AS_THEY_ARE = ("CITATION.cff", "LICENSE")
LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)")
CODE, OPTION = re.compile(r"<code>[^<]*</code>"), re.compile(r"--[\w-]+")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of the project's own folder.

    Args:
        files: The files below docs/.
        config: The configuration of MkDocs.

    Returns:
        The files with the added ones.
    """
    for name, place in PLACES.items():
        files.append(File.generated(config, place, content=relinked((ROOT / name).read_text(), name)))
    for name in AS_THEY_ARE:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    files.append(File.generated(config, "examples.md", content=examples_page()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Change the links of a page below docs/ that lead out of it.

    Args:
        markdown: The text of the page.
        page: The page.
    """
    name = page.file.src_uri
    return relinked(markdown, f"docs/{name}") if (ROOT / "docs" / name).exists() else markdown


def on_page_content(html: str, **_: Any) -> str:
    """Mark options such as --out, so that the style sheet can keep each on one line.

    Args:
        html: The content of a page.
    """
    return CODE.sub(lambda code: OPTION.sub(r'<span class="option">\g<0></span>', code[0]), html)


def relinked(markdown: str, name: str) -> str:
    """Return a page with links to where the files are on the site.

    Args:
        markdown: The text of the page, with links as on GitHub.
        name: Its file in the project.
    """
    here = posixpath.dirname(place_of(name))

    def moved(link: re.Match[str]) -> str:
        target = place_of(posixpath.normpath(posixpath.join(posixpath.dirname(name), link[1])))
        return f"]({posixpath.relpath(target, here or '.')}"

    return LINK.sub(moved, markdown)


def place_of(name: str) -> str:
    """Return where a file of the project is on the site.

    Args:
        name: Its path in the project.
    """
    if name.startswith("examples/"):
        return f"examples.md#{slug(name)}"
    return PLACES.get(name, name.removeprefix("docs/"))


def slug(heading: str) -> str:
    """Return the anchor of a heading.

    Args:
        heading: Its text.
    """
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def examples_page() -> str:
    """Return a page with the files of examples/."""
    parts = ["# Examples", "Whole programs to start from; each says at its top what it needs."]
    for path in sorted((ROOT / "examples").glob("*.py")):
        parts += [f"## examples/{path.name}", f"```python\n{path.read_text()}```"]
    return "\n\n".join(parts)
