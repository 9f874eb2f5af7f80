"""The page of a hundred thousand rollouts in a real Chromium: its size, its first sight, its filters."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from made_run import failed, made_run
from opened_page import until

from grpo.core.record.run_dir import RolloutRow
from grpo.core.report.report import Written, write_report

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.slow]
Opened = Callable[..., "Page"]
LIMIT = 30_000_000
FIRST_SIGHT = 1.0  # seconds
FILTER = 0.2
TIMED = """async (fragment) => {
  const before = performance.now();
  const count = document.querySelector(".count").textContent;
  location.hash = fragment;
  while (document.querySelector(".count").textContent === count) await new Promise(requestAnimationFrame);
  return (performance.now() - before) / 1000;
}"""


def reasoned(row: RolloutRow, number: int) -> RolloutRow:
    """Gives a rollout a long text of its own."""
    chance = random.Random(row.step * 10_000 + number)
    words = chance.randbytes(240).hex(" ", 4)
    own = replace(row, completion=words, tokens=100 + chance.randrange(900))
    return failed(own, "timed out") if number % 500 == 3 else own


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    folder = tmp_path_factory.mktemp("large")
    run = made_run(folder / "run", steps=100, groups=125, members=8, change=reasoned)
    return write_report([run.path], folder / "run.html", limit=LIMIT)


def test_it_keeps_its_size_and_every_failure(written: Written, opened: Opened) -> None:
    assert written.recorded == 100_000
    assert written.size <= LIMIT
    assert written.held > 30_000
    page = opened(written.path, "#rollouts?failed=any")
    page.wait_for_selector(".row")
    assert page.locator(".count").inner_text().startswith("200 of 100,000 rollouts")
    page.evaluate("location.hash = '#overview'")
    page.wait_for_selector(".facts")
    assert "of 100,000 rollouts" in page.locator(".note").first.inner_text()


def test_it_is_seen_and_filtered_at_once(written: Written, opened: Opened) -> None:
    page = opened(written.path)
    paint = "performance.getEntriesByType('paint').find(({ name }) => name === 'first-contentful-paint')?.startTime"
    until(page, paint)
    assert page.evaluate(paint) / 1000 < FIRST_SIGHT
    page.evaluate("location.hash = '#rollouts'")
    page.wait_for_selector(".row")
    for fragment in ("#rollouts?step=50", "#rollouts?sort=-reward", "#rollouts?verdict=wrong&max=0.3&sort=-tokens"):
        assert page.evaluate(TIMED, fragment) < FILTER, fragment
