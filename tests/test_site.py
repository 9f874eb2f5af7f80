"""The documentation as a site: it builds without a warning, every link in it leads somewhere, nothing is fetched."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

import grpo

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
FETCHED = {("script", "src"), ("link", "href"), ("img", "src"), ("iframe", "src"), ("source", "src")}


class Page(HTMLParser):
    """What a page of the site points to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            if (tag, name) in FETCHED and value:
                self.fetched.append(value)
            if tag == "a" and name == "href" and value:
                self.links.append(value)


def test_every_page_is_in_the_contents_once() -> None:
    listed = re.findall(r"^(\w[\w-]*)$", (DOCS / "index.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(page.stem for page in DOCS.glob("*.md") if page.stem != "index")


def test_the_page_of_the_api_has_every_public_name_once() -> None:
    named = re.findall(r"^\.\. auto\w+:: grpo\.(\w+)$", (DOCS / "api.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(named) == sorted(grpo.__all__)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Page]:
    """The pages of a site that was built without a warning, by file."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", str(DOCS), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {file: Page(file.read_text(encoding="utf-8")) for file in sorted(out.rglob("*.html"))}


@pytest.mark.site
def test_every_link_inside_leads_somewhere(site: dict[Path, Page]) -> None:
    assert len(site) > 30
    lost = []
    for file, page in site.items():
        for link in page.links:
            target, _, anchor = unquote(link).partition("#")
            if "://" in target or target.startswith("mailto:"):
                continue
            there = (file.parent / target).resolve() if target else file
            if not there.is_file() or (anchor and there in site and anchor not in site[there].anchors):
                lost.append(f"{file.name}: {link}")
    assert lost == []


@pytest.mark.site
def test_the_pages_fetch_nothing_from_anywhere(site: dict[Path, Page]) -> None:
    fetched = {link for page in site.values() for link in page.fetched}
    assert any(link.endswith(".css") or ".css?" in link for link in fetched)
    assert [link for link in fetched if "//" in link] == []
    (styles,) = {file.parent for file in site if file.name == "index.html"}
    sheets = [sheet.read_text(encoding="utf-8") for sheet in styles.rglob("*.css")]
    assert [found for sheet in sheets for found in re.findall(r"url\(\s*['\"]?(?:https?:)?//[^)]*\)", sheet)] == []


@pytest.mark.site
def test_docstrings_reach_the_page_of_the_api(site: dict[Path, Page]) -> None:
    (api,) = [file for file in site if file.name == "api.html"]
    text = api.read_text(encoding="utf-8")
    assert "Makes a sampler of a function" in text
    assert {f"grpo.{name}" for name in grpo.__all__} <= site[api].anchors


@pytest.mark.site
def test_the_search_knows_words_of_every_part(site: dict[Path, Page]) -> None:
    (out,) = {file.parent for file in site if file.name == "index.html"}
    index = (out / "searchindex.js").read_text(encoding="utf-8")
    for word in ("curriculum", "seccomp", "sbatch", "luspo", "rowsseen"):
        assert word in index
