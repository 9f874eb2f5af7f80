"""A page of `grpo report`, opened in a real Chromium that may reach nothing, and watched for whatever goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Opened = Callable[..., "Page"]


@pytest.fixture
def opened(chromium: Browser) -> Iterator[Opened]:
    """Opens a file at a fragment; afterwards nothing was asked of any network, and nothing was complained of."""
    trouble: list[str] = []
    contexts = []

    def open_page(file: Path, fragment: str = "", *, width: int = 1280, height: int = 900, **options: Any) -> Page:
        context = chromium.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("console", lambda said: trouble.append(f"{said.type}: {said.text}"))
        page.on("pageerror", lambda error: trouble.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (trouble.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("popup", lambda other: trouble.append(f"a window: {other.url}"))
        address = file.as_uri()
        page.on("request", lambda one: None if _own(one.url, address) else trouble.append(f"request: {one.url[:200]}"))
        page.goto(f"{address}{fragment}")
        page.wait_for_selector("main")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert trouble == []


def _own(url: str, address: str) -> bool:
    return url.partition("#")[0] == address or url.startswith("data:image/svg+xml")
