"""How a page is laid out in a real Chromium: charts fill their rows, legends stay small, colours mean one thing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from made_run import QUESTION, made_run

from grpo.core.record.run_dir import append_metrics
from grpo.core.report.report import write_report

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser
Opened = Callable[..., "Page"]
NAME = "20261125-2139{:02}-gsm8k-of-a-sweep-whose-names-are-long"
ROWS = """() => [...document.querySelectorAll(".charts")].flatMap((grid) => {
  const widths = new Map();
  for (const chart of grid.children) {
    const { top, width } = chart.getBoundingClientRect();
    widths.set(top, (widths.get(top) ?? 0) + width);
  }
  return [...widths.values()].map((width) => width / grid.getBoundingClientRect().width);
})"""
LEGENDS = """() => [...document.querySelectorAll(".chart")].map((chart) =>
  chart.querySelector(".legend").offsetHeight / chart.querySelector(".plot").getBoundingClientRect().height)"""
COLOUR = "(node) => getComputedStyle(node).color"


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Pages of one run and of nine."""
    folder = tmp_path_factory.mktemp("reports")
    made = [made_run(folder / NAME.format(number), steps=6) for number in range(9)]
    append_metrics(made[0], {"step": 6, **{f"other/{name}": 1.0 for name in "abcd"}})
    runs = [run.path for run in made]
    return {count: write_report(runs[:count], folder / f"{count}.html", limit=30_000_000).path for count in (1, 9)}


@pytest.mark.parametrize("width", [400, 900, 1280, 1500])
def test_charts_fill_their_rows(reports: dict[int, Path], opened: Opened, width: int) -> None:
    filled = opened(reports[1], width=width).evaluate(ROWS)
    assert len(filled) >= 6
    assert min(filled) > 0.9


@pytest.mark.parametrize("width", [400, 900, 1500])
@pytest.mark.parametrize("count", [1, 9])
def test_no_legend_is_taller_than_its_chart_whatever_runs_are_called(
    reports: dict[int, Path], opened: Opened, count: int, width: int
) -> None:
    assert max(opened(reports[count], width=width).evaluate(LEGENDS)) < 0.7


def test_colours_of_several_runs_are_explained_once_and_stay_in_sight(reports: dict[int, Path], opened: Opened) -> None:
    page = opened(reports[9])
    assert page.locator(".run-key li").all_inner_texts() == [NAME.format(number) for number in range(9)]
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    assert page.locator(".run-key").evaluate("(node) => node.getBoundingClientRect().top") == 0
    reward = page.locator(".chart", has_text="Reward").first
    assert reward.locator(".key").count() == 9
    assert reward.locator(".key").first.get_attribute("title") == NAME.format(0)
    shown = [
        page.locator(".run-key .swatch").nth(at).evaluate("(node) => getComputedStyle(node).backgroundColor")
        for at in range(9)
    ]
    assert len(set(shown)) == 9
    assert opened(reports[1]).locator(".run-key").count() == 0


def test_right_and_wrong_have_the_same_colours_in_the_list_and_in_the_group(
    reports: dict[int, Path], opened: Opened
) -> None:
    page = opened(reports[1], "#rollouts?step=1&at=1.0&view=group")
    page.wait_for_selector(".card b.wrong")
    colours: dict[str, Any] = {}
    for verdict in ("right", "wrong"):
        colours[verdict] = page.locator(f".card b.{verdict}").first.evaluate(COLOUR)
        assert colours[verdict] == page.locator(f".row b.{verdict}").first.evaluate(COLOUR)
    assert len({*colours.values(), page.locator("body").evaluate(COLOUR)}) == 3
    assert page.get_by_text(QUESTION.format(3, 4)).first.is_visible()


def test_a_run_says_when_it_began_and_how_long_it_took(reports: dict[int, Path], opened: Opened) -> None:
    page = opened(reports[1])
    assert "started " in page.locator("header.run").inner_text()
    facts = page.locator(".facts").inner_text()
    assert "6 of 6\n12 s" in facts
    assert "all in this file" in facts
    headings = opened(reports[9]).locator("table.runs thead").inner_text()
    assert {"Started", "Time"} <= set(headings.split("\t"))
