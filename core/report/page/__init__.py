"""Writes the HTML page of a report, and those that `grpo watch` serves, around blocks of data.

Blocks are base64, so no text of a run is ever part of the HTML; the script sets it as text alone. The head's policy
allows this one script and style sheet, by digest, and no network; a served page may ask its own server.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from grpo.core.report.page.linker import link

FOLDER = Path(__file__).parent
REPORT, LIVE, LIST = "report.js", "live.js", "runs.js"  # the modules that pages run
ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    "%3Crect width='16' height='16' rx='3' fill='%230072B2'/%3E"
    "%3Cpath d='M3 12l3-4 3 2 4-6' fill='none' stroke='white' stroke-width='2'/%3E%3C/svg%3E"
)
POLICY = (
    "default-src 'none'; script-src {script}; style-src {style}; img-src data:; base-uri 'none'; form-action 'none'"
)
FOLLOWING = "; connect-src 'self'"
BLOCK = '<script type="application/octet-stream" id="{name}">{block}</script>\n'
Named = tuple[str, str]  # a block and its name in the page


def page(summary: str, rollouts: Sequence[Named]) -> Iterator[str]:
    """Yields the page of a report in pieces; `summary` is drawn before the other blocks have been read."""
    return _document("Run report", REPORT, [("summary", summary)], rollouts)


def live_page(summary: str, version: str) -> Iterator[str]:
    """Yields the same page as one that asks its server for blocks, and for a newer state of its runs."""
    return _document("Run report", LIVE, [("summary", summary), ("version", version)], [], FOLLOWING)


def list_page() -> Iterator[str]:
    """Yields the page that lists the runs of a folder, which it asks its server for."""
    return _document("Runs", LIST, [], [], FOLLOWING)


def _document(
    title: str, entry: str, first: Sequence[Named], rest: Sequence[Named], allowed: str = ""
) -> Iterator[str]:
    script, style = _script(entry), (FOLDER / "style.css").read_text(encoding="utf-8")
    policy = POLICY.format(script=_digest(script), style=_digest(style)) + allowed
    yield (FOLDER / "head.html").read_text(encoding="utf-8").format(policy=policy, icon=ICON, style=style, title=title)
    for name, block in first:
        yield BLOCK.format(name=name, block=block)
    yield f"<script>{script}</script>\n"
    for name, block in rest:
        yield BLOCK.format(name=name, block=block)
    yield "</body>\n</html>\n"


@cache
def _script(entry: str) -> str:
    return link(FOLDER, entry)


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
