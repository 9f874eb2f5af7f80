"""Builds the documentation as a site that needs no network (`make docs`).

Sphinx reads docstrings, checks every link and writes a search that runs in the browser. MyST lets it read these pages,
which are Markdown, so that they also read well on a code host.
"""

from __future__ import annotations

import re
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent

project = "grpo"
author = "the authors of grpo-kit"
version = release = metadata.version("grpo-kit")
html_title = f"grpo {version}"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
default_role = "code"  # docstrings write names in single backquotes
myst_heading_anchors = 4
# The site is one language, and a page of settings has words that no lexer knows.
highlight_language = "none"
suppress_warnings = ["misc.highlighting_failure"]

autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_class_signature = "separated"
napoleon_numpy_docstring = False
napoleon_use_ivar = True

html_theme = "furo"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
templates_path = ["_templates"]
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "versions.html",
        "sidebar/scroll-end.html",
    ]
}


def released() -> list[str]:
    """Returns the versions that a site may stand beside this one for: the tags of the checkout, newest first."""
    try:
        listed = subprocess.run(
            ["git", "tag", "--list", "v*", "--sort=-v:refname"], cwd=DOCS, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return []
    return [tag.removeprefix("v") for tag in listed.stdout.split()]


html_context = {"versions": released()}

REPOSITORY = "https://github.com/grpo-kit/grpo-kit/blob/main/"
# README.md has full addresses, since PyPI shows it too.
_LINK = re.compile(
    r"(?P<picture>!?)\[(?P<text>[^\]\n]+)\]\("
    r"(?P<host>https://(?:github\.com/grpo-kit/grpo-kit/blob|raw\.githubusercontent\.com/grpo-kit/grpo-kit)/main/)?"
    r"(?P<file>[\w./-]+)(?P<anchor>#[^)\s]*)?\)"
)
PAGES = {"README.md": "index.md", "CHANGELOG.md": "changes.md", "CONTRIBUTING.md": "contributing.md"}


def with_links_inside(text: str, folder: Path) -> str:
    """Turns links to files of the checkout into links of the site; where it has no such page, the text is left.

    Args:
        text: Markdown.
        folder: where it stands.
    """

    def link(match: re.Match[str]) -> str:
        target = ((DOCS.parent if match["host"] else folder) / match["file"]).resolve()
        anchor = match["anchor"] or ""
        outside = target.relative_to(DOCS.parent).as_posix() if target.is_relative_to(DOCS.parent) else ""
        if outside in PAGES:
            return f"[{match['text']}]({PAGES[outside]}{anchor})"
        if target.parent == DOCS and target.is_file():
            return f"{match['picture']}[{match['text']}]({target.name}{anchor})"
        if outside.endswith(".md") and target.is_file():  # a page beside a benchmark, which is no page of the site
            return f"[{match['text']}]({REPOSITORY}{outside}{anchor})"
        return match[0] if match["host"] or (target.is_file() and folder == DOCS) else match["text"]

    return _LINK.sub(link, text)


def setup(app: Any) -> None:
    """Has every page read as the site needs it, those that stand outside of this folder too."""

    def read(app: Any, name: str, source: list[str]) -> None:
        source[0] = with_links_inside(source[0], DOCS)

    def included(app: Any, path: Path, parent: str, content: list[str]) -> None:
        content[0] = with_links_inside(content[0], DOCS.parent)

    app.connect("source-read", read)
    app.connect("include-read", included)
