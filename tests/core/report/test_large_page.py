"""The page of twenty thousand rollouts in a real Chromium: its size, and how little work its views and filters take."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from made_run import failed, made_run

from grpo.core.record.run_dir import RolloutRow
from grpo.core.report.report import Written, write_report

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.slow]
Opened = Callable[..., "Page"]
LIMIT = 6_000_000
COUNTING = """() => {
  window.work = { elements: 0, blocks: 0 };
  const { createElement } = Document.prototype, Unpacking = DecompressionStream;
  Document.prototype.createElement = function (...given) {
    window.work.elements += 1;
    return createElement.apply(this, given);
  };
  window.DecompressionStream = function (kind) {
    window.work.blocks += 1;
    return new Unpacking(kind);
  };
}"""
WORK = """async (fragment) => {
  window.work.elements = window.work.blocks = 0;
  const count = document.querySelector(".count")?.textContent;
  location.hash = fragment;
  const filtered = () => ![count, undefined].includes(document.querySelector(".count")?.textContent);
  while (!filtered() || !document.querySelector(".row")) await new Promise(requestAnimationFrame);
  return window.work;
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
    run = made_run(folder / "run", steps=20, groups=125, members=8, change=reasoned)
    return write_report([run.path], folder / "run.html", limit=LIMIT)


def test_it_keeps_its_size_and_every_failure(written: Written, opened: Opened) -> None:
    assert written.recorded == 20_000
    assert written.size <= LIMIT
    assert 6_000 < written.held < 20_000
    page = opened(written.path, "#rollouts?failed=any")
    page.wait_for_selector(".row")
    assert page.locator(".count").inner_text().startswith("40 of 20,000 rollouts")
    page.evaluate("location.hash = '#overview'")
    page.wait_for_selector(".facts")
    assert "of 20,000 rollouts" in page.locator(".note").first.inner_text()


def test_a_view_and_a_filter_take_little_work_however_many_rollouts_there_are(written: Written, opened: Opened) -> None:
    page = opened(written.path)
    page.wait_for_selector(".facts")
    assert page.locator("*").count() < 3000
    page.evaluate(COUNTING)
    fragments = (
        *("#rollouts", "#rollouts?step=20", "#rollouts?sort=-reward"),
        "#rollouts?verdict=wrong&max=0.3&sort=-tokens",
    )
    works = [page.evaluate(WORK, fragment) for fragment in fragments]
    assert works[0]["blocks"] > 0, "the overview needed no rollout"
    unpacked = sum(work["blocks"] for work in works[:3])  # what one view asks for may arrive during the next
    assert unpacked <= 3 * 2, "what a list does not show stays packed"
    assert max(work["elements"] for work in works) < 2000, "rows that are out of sight are not drawn"
