"""What tests of a page in a browser share: waiting in a page whose policy forbids to evaluate anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page


def until(page: Page, condition: str) -> None:
    """Waits until an expression is true in the page; its policy forbids what Playwright's own waiting does.

    Raises:
        AssertionError: it never was.
    """
    for _ in range(2400):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(25)
    raise AssertionError(f"never so: {condition}; at {page.url}")


def until_at(page: Page, *parts: str) -> None:
    """Waits until the address holds every part."""
    until(page, f"[{', '.join(map(repr, parts))}].every((part) => location.hash.includes(part))")
