"""The documentation site: it builds without a warning, links lead somewhere, nothing comes from elsewhere."""

import importlib
import os
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PUBLIC = ("", ".priors", ".likelihoods", ".rff", ".swag", ".laplace", ".compare", ".data", ".models", ".metrics")


def build(project, out):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)


class Page(HTMLParser):
    """The anchors, links, sources and texts of paragraphs of a page."""

    def __init__(self, path):
        super().__init__()
        self.path, self.ids, self.links, self.sources, self.paragraphs = path, set(), [], [], []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.ids.add(values.get("id"))
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        if tag in ("img", "script") and values.get("src"):
            self.sources.append(values["src"])
        if tag == "link" and values.get("rel") not in ("canonical", "prev", "next"):
            self.sources.append(values["href"])
        if tag == "p":
            self.paragraphs.append("")

    def handle_data(self, data):
        if self.paragraphs and self.lasttag == "p":
            self.paragraphs[-1] += data


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT, folder)
    assert done.returncode == 0, done.stderr
    return {path.resolve(): Page(path) for path in folder.rglob("*.html") if path.name != "404.html"}


def test_links_and_anchors(pages):
    for path, page in pages.items():
        for link in page.links:
            if "://" in link:
                continue
            name, anchor = urldefrag(link)
            target = (path.parent / unquote(name)).resolve() if name else path
            assert target.exists(), (path.name, link)
            if anchor and target in pages:
                assert unquote(anchor) in pages[target].ids, (path.name, link)


def test_nothing_comes_from_elsewhere(pages):
    for path, page in pages.items():
        for source in page.sources:
            assert "//" not in source, source
            assert (path.parent / source).exists(), (path.name, source)


def test_lists_are_shown_as_lists(pages):
    """Without an empty line before it, the site shows a list as text, other than GitHub."""
    for path, page in pages.items():
        assert not [text for text in page.paragraphs if "\n- " in text or "\n| " in text], path.name


def test_the_reference_names_everything_public(pages):
    anchors = set().union(*(page.ids for page in pages.values()))
    for package in PUBLIC:
        module = importlib.import_module(f"deelbo{package}")
        for name in module.__all__:
            if callable(getattr(module, name)):
                assert f"deelbo{package}.{name}" in anchors


def test_a_link_to_nowhere_stops_the_build(tmp_path):
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    for name in ("mkdocs.yml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "CITATION.cff", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "src").symlink_to(ROOT / "src")
    with (tmp_path / "docs" / "limits.md").open("a") as page:
        page.write("\n[Nowhere](idea.md#no-such-heading) and [nobody](nobody.md)\n")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode != 0
    assert "idea.md#no-such-heading" in done.stderr
    assert "nobody.md" in done.stderr


@pytest.mark.parametrize(("width", "scheme"), [(420, "light"), (420, "dark"), (1400, "light"), (1400, "dark")])
def test_in_chromium(pages, browser, width, scheme):
    """No page is wider than the window, every picture is there, and the colours are those that the reader prefers."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    for path in sorted(pages) if (width, scheme) == (420, "light") else sorted(pages)[-8:]:
        page.goto(path.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), path.name
        assert page.evaluate("[...document.images].every(picture => picture.complete && picture.naturalWidth > 0)")
        dark = page.evaluate("document.body.dataset.mdColorScheme === 'slate'")
        assert dark == (scheme == "dark")
    assert all(url.startswith(("file:", "data:", "blob:")) for url in asked)
    page.close()
