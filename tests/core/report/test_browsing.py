"""The rollouts of a page in a real Chromium: what is typed stays, links hold what is shown, odd values stop nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from made_run import failed, made_run
from opened_page import until, until_at

from grpo.core.record.run_dir import RolloutRow, append_metrics
from grpo.core.report.report import write_report

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser
Opened = Callable[..., "Page"]
ROOM = 30_000_000
MANY = 1200  # messages, of which 500 are shown at once


def odd(row: RolloutRow, number: int) -> RolloutRow:
    if row.step == 2 and number == 5:
        return failed(row, "ValueError: no number")
    if row.step == 2 and number == 6:
        said = [{"role": "assistant", "content": f"part {at}"} for at in range(MANY)]
        return replace(row, messages=json.dumps(said), completion="\u200b" * 60_000)
    return row


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    run = made_run(folder / "pens", steps=6, groups=4, change=odd, lora={"enabled": True}, seed=7)
    for step, count in ((5, 10**17), (6, 10**17 + 16)):
        append_metrics(run, {"step": step, "counted": count})
    return write_report([run.path], folder / "run.html", limit=ROOM).path


def heading(page: Page, text: str) -> None:
    until(page, f"document.querySelector('.detail h2')?.textContent === {text!r}")


def test_the_list_follows_what_is_typed_across_line_breaks_and_marks_it(report: Path, opened: Opened) -> None:
    page = opened(report, "#rollouts")
    page.locator("#search").click()
    page.keyboard.type("3+4=7. #### 7")
    until_at(page, "q=3%2B4%3D7.+%23%23%23%23+7")
    until(page, "!document.querySelector('.count').textContent.includes('96 of')")
    until(page, "document.querySelector('.detail .answer mark')?.textContent === '3+4=7.\\n#### 7'")
    page.wait_for_selector(".row mark")
    page.keyboard.type("7")
    until(page, "document.querySelector('.count').textContent.startsWith('0 of 96')")
    assert page.locator(".detail").inner_text().endswith("No rollout fits what is chosen.")
    page.get_by_text("Show all").click()
    until(page, "document.querySelector('.count').textContent.startsWith('96 of 96')")
    assert page.locator("#search").input_value() == ""
    assert page.locator("mark").count() == 0


def test_what_is_typed_before_the_list_is_there_is_searched_for(report: Path, opened: Opened) -> None:
    page = opened(report)
    page.keyboard.press("/")
    page.keyboard.type("5+6=11")
    until_at(page, "q=5%2B6%3D11")
    assert page.locator("#search").input_value() == "5+6=11"


def test_a_search_for_nothing_but_spaces_lists_every_rollout(report: Path, opened: Opened) -> None:
    page = opened(report, "#rollouts?q=%20")
    page.wait_for_selector(".detail .rollout")
    [listed, recorded] = re.findall(r"\d+", page.locator(".count").inner_text())
    assert listed == recorded


def test_keys_that_need_a_view_do_nothing_before_there_is_one(report: Path, opened: Opened) -> None:
    page = opened(report)
    page.add_init_script("""
        const add = addEventListener.bind(window);
        window.addEventListener = (type, ...rest) => {
          add(type, ...rest);
          if (type !== "keydown") return;
          for (const key of "?cjg") queueMicrotask(() => dispatchEvent(new KeyboardEvent("keydown", { key })));
        };
    """)
    page.reload()
    page.wait_for_selector("main")
    assert page.locator("#help[open]").count() == 0
    page.keyboard.press("?")
    assert page.locator("#help[open]").count() == 1


def test_a_filter_that_was_written_stays_when_the_next_one_is(report: Path, opened: Opened) -> None:
    page = opened(report, "#rollouts")
    page.locator("summary", has_text="Filters").click()
    page.get_by_label("Reward from").click()
    page.keyboard.type("0.3")
    page.keyboard.press("Tab")
    page.keyboard.type("0.6")
    page.keyboard.press("Enter")
    until_at(page, "min=0.3", "max=0.6")
    page.get_by_label("Step, or steps as 1-20").fill("3,5")
    page.keyboard.press("Enter")
    refusal = "document.querySelector('.stepper input').validationMessage"
    assert page.evaluate(refusal) == "A step such as 3, or steps as 3-9"
    assert "step" not in page.url
    page.get_by_label("Step, or steps as 1-20").fill("3-5")
    page.keyboard.press("Enter")
    until_at(page, "step=3-5", "min=0.3", "max=0.6")


def test_a_copied_link_shows_the_same_view(report: Path, opened: Opened) -> None:
    page = opened(report, "#rollouts?step=3&sort=reward&at=3.5&to=3.4")
    page.wait_for_selector(".answer del")
    page.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    page.get_by_role("button", name="Copy link").click()
    until(page, "window.copied !== undefined")
    assert page.evaluate("window.copied") == page.url
    opened(report, page.url.partition("#")[1] + page.url.partition("#")[2]).wait_for_selector(".answer del")
    page.evaluate("location.hash = '#rollouts?step=4'")
    heading(page, "Step 4 group 0 · #0")
    page.keyboard.press("c")
    until(page, "window.copied.includes('step=4') && window.copied.includes('at=4.0')")


@pytest.mark.parametrize("name", ["99.1", "2.500", "2.9999", "here"])
def test_a_link_to_a_rollout_that_is_not_here_says_so(report: Path, opened: Opened, name: str) -> None:
    page = opened(report, f"#rollouts?at={name}")
    until(page, f"document.querySelector('.detail').textContent.endsWith('There is no rollout {name} in this page.')")


def test_the_next_step_is_that_after_the_open_rollout_and_its_group_keeps_the_search(
    report: Path, opened: Opened
) -> None:
    page = opened(report, "#rollouts?q=She&at=3.5")
    heading(page, "Step 3 group 1 · #5")
    page.locator(".bars a").nth(3).click()
    heading(page, "Step 3 group 1 · #7")
    until_at(page, "q=She", "at=3.7")
    page.keyboard.press("l")
    heading(page, "Step 4 group 0 · #0")
    until_at(page, "q=She", "step=4")
    page.keyboard.press("h")
    heading(page, "Step 3 group 0 · #0")
    page.locator("nav a", has_text="Settings").click()
    page.wait_for_selector("table.values")
    page.locator("nav a", has_text="Rollouts").click()
    until_at(page, "q=She", "step=3")


def test_a_failed_rollout_has_no_advantage_and_a_long_one_comes_in_pieces(report: Path, opened: Opened) -> None:
    page = opened(report, "#rollouts?at=2.5")
    heading(page, "Step 2 group 1 · #5")
    assert "failed, and not trained on" in page.locator(".figures").inner_text()
    page.evaluate("location.hash = '#rollouts?at=2.6'")
    heading(page, "Step 2 group 1 · #6")
    assert page.locator(".answer .message").count() == 500
    page.get_by_role("button", name="700 more").click()
    assert page.locator(".answer .message").count() == 1000
    page.evaluate("location.hash = '#rollouts?at=2.6&to=2.7'")
    page.wait_for_selector(".answer ins")
    assert page.locator(".answer .unseen").inner_text() == "200B \u00d7 60,000"


def test_settings_that_are_asked_for_first_and_whole_numbers_of_any_size_are_on_the_first_view(
    report: Path, opened: Opened
) -> None:
    page = opened(report)
    assert "LoRA, learning rate 3e\u22125, seed 7" in page.locator("header.run").inner_text()
    assert page.locator(".chart", has_text="counted").count() == 1
