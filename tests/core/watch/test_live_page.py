"""The pages of `grpo watch` in a real Chromium: runs go on, and whoever reads keeps their place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hostile_texts import hostile_texts
from made_run import grow, made_metrics, made_rollout, made_run
from opened_page import until, until_at

from grpo.core.record.labels import Labels, read_labels, write_labels
from grpo.core.record.run_dir import RolloutRow, append_metrics, write_rollouts
from grpo.core.watch.folder import WatchedFolder
from grpo.core.watch.server import WatchServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser
Served = Callable[..., "Page"]


@pytest.fixture
def served(chromium: Browser) -> Iterator[Served]:
    """Serves a folder and opens a page of it; afterwards nothing went wrong and no other server was asked."""
    trouble: list[str] = []
    ends: list[Callable[[], object]] = []

    def serve(folder: Path, asked: str = "", *, edit: bool = False, width: int = 1280) -> Page:
        server = WatchServer(WatchedFolder(folder), 0, edit=edit)
        server.start()
        context = chromium.new_context(viewport={"width": width, "height": 900})
        ends.extend([context.close, server.stop])
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("console", lambda said: trouble.append(f"{said.type}: {said.text}"))
        page.on("pageerror", lambda error: trouble.append(f"error: {error}"))
        page.on("request", lambda one: None if one.url.startswith((server.link, "data:")) else trouble.append(one.url))
        page.goto(f"{server.link}{asked}")
        page.wait_for_selector("main")
        return page

    yield serve
    for end in ends:
        end()
    assert trouble == []


def names(page: Page) -> list[str]:
    found: list[str] = page.locator("tbody th a").all_inner_texts()
    return found


def test_the_overview_follows_a_run_and_stays_where_it_was(tmp_path: Path, served: Served) -> None:
    run = made_run(tmp_path / "pens", steps=20)
    page = served(tmp_path, "report?run=pens")
    page.locator("#smooth").fill("20")
    page.evaluate("scrollTo(0, 400)")
    grow(run, 21)
    until(page, "document.querySelector('.facts').textContent.includes('21 of 20')")
    assert page.evaluate("scrollY") == 400
    assert page.locator(".controls output").inner_text() == "20 steps"
    assert page.evaluate("document.activeElement.id") == "smooth"


def test_a_rollout_stays_open_and_the_list_where_it_was_while_a_run_goes_on(tmp_path: Path, served: Served) -> None:
    run = made_run(tmp_path / "pens", steps=20)
    page = served(tmp_path, "report?run=pens#rollouts?at=12.3&sort=-reward")
    page.wait_for_selector(".detail .rollout")
    page.locator("summary", has_text="The row that the rewards read").click()
    page.locator(".list").evaluate("node => (node.scrollTop = 1234)")
    until(page, "document.querySelector('.list').scrollTop === 1234")
    shown = (
        "[...document.querySelectorAll('.row .where')].map((own) => [own.getBoundingClientRect().top, own.innerText])"
    )
    until(page, f"{shown}.some(([top]) => top > 0 && top < innerHeight)")  # the rows at this place are drawn
    above = page.locator(".list").bounding_box()
    assert above is not None
    before = [own for own in page.evaluate(shown) if own[0] >= above["y"]]
    grow(run, 21)
    until(page, "document.querySelectorAll('.through tbody tr').length === 21")
    assert page.locator(".count").inner_text() == "168 of 168 rollouts"
    assert [own for own in page.evaluate(shown) if own[0] >= above["y"]] == before
    assert page.locator(".detail h2").inner_text() == "Step 12 group 0 · #3"
    assert page.locator(".detail details[open]").count() == 1
    page.keyboard.press("j")
    until(page, "!document.querySelector('.detail h2').textContent.endsWith('Step 12 group 0 · #3')")


def test_a_page_of_a_run_that_has_not_begun_fills(tmp_path: Path, served: Served) -> None:
    run = made_run(tmp_path / "pens", steps=0)
    page = served(tmp_path, "report?run=pens#rollouts")
    page.wait_for_selector(".count")
    grow(run, 1)
    page.wait_for_selector(".detail .rollout")
    assert page.locator(".row").count() == 8


def test_nobody_is_disturbed_while_they_write(tmp_path: Path, served: Served) -> None:
    run = made_run(tmp_path / "pens")
    page = served(tmp_path, "report?run=pens#rollouts")
    page.locator("#search").type("She h")
    grow(run, 4)
    until(page, "document.querySelector('.count').textContent.endsWith('of 32 rollouts')")
    page.keyboard.type("as 4+")
    assert page.locator("#search").input_value() == "She has 4+"
    until_at(page, "q=She+has+4%2B")
    until(page, "document.querySelector('.count').textContent.startsWith('16 of 32')")
    page.get_by_text("Filters").click()
    page.get_by_label("Reward from").type("0.")
    grow(run, 5)
    until(page, "document.querySelector('.count').textContent.endsWith('of 40 rollouts')")
    page.keyboard.type("5")
    assert page.get_by_label("Reward from").input_value() == "0.5"


def test_runs_are_found_sorted_and_compared(tmp_path: Path, served: Served) -> None:
    for steps, name in ((3, "short"), (12, "long"), (7, "middle")):
        made_run(tmp_path / name, steps=steps)
    page = served(tmp_path)
    page.wait_for_selector("tbody tr")
    assert names(page) == ["short", "long", "middle"]
    page.get_by_role("button", name="Step").click()
    assert names(page) == ["long", "middle", "short"]
    page.get_by_role("button", name="Step").click()
    assert names(page) == ["short", "middle", "long"]
    assert page.locator("th[aria-sort=ascending]").inner_text() == "Step ↑"
    made_run(tmp_path / "new", steps=1)
    until(page, "document.querySelectorAll('tbody tr').length === 4")
    assert names(page) == ["new", "short", "middle", "long"]
    page.get_by_label("Search").fill("MIDD done")
    assert names(page) == ["middle"]
    page.get_by_label("Search").fill("")
    for name in ("short", "long"):
        page.get_by_label(f"Compare {name}").check()
    page.get_by_role("button", name="Compare 2 runs").click()
    page.wait_for_selector(".overview .chart")
    assert page.locator("h1").inner_text() == "2 runs"
    page.get_by_role("link", name="All runs").click()
    page.wait_for_selector("tbody tr")


def test_what_is_read_only_offers_no_change(tmp_path: Path, served: Served) -> None:
    made_run(tmp_path / "pens", steps=1)
    page = served(tmp_path)
    page.wait_for_selector("tbody tr")
    assert page.get_by_role("button", name="Label").count() == 0
    assert page.get_by_role("button", name="Delete").count() == 0


def test_a_run_is_labelled_hidden_and_deleted_after_its_name_was_typed(tmp_path: Path, served: Served) -> None:
    runs = [made_run(tmp_path / name, steps=1) for name in ("one", "two")]
    page = served(tmp_path, edit=True)
    page.get_by_role("button", name="Label one").click()
    page.get_by_label("Tags").fill("best, to show")
    page.get_by_label("Note").fill("the one of Monday")
    page.get_by_role("button", name="Save").click()
    page.wait_for_selector(".tag")
    assert page.locator(".tag").all_inner_texts() == ["best", "to show"]
    assert read_labels(runs[0]) == Labels(("best", "to show"), "the one of Monday")
    page.get_by_role("button", name="Label two").click()
    page.get_by_label("hide it").check()
    page.get_by_role("button", name="Save").click()
    until(page, "document.querySelectorAll('tbody tr').length === 1")
    page.get_by_label("hidden ones too").check()
    assert names(page) == ["one", "two"]
    page.get_by_role("button", name="Delete two").click()
    assert page.get_by_role("button", name="Delete for good").is_disabled()
    page.get_by_label("Its name").fill("tw")
    page.keyboard.press("Enter")
    assert page.get_by_role("button", name="Delete for good").is_disabled()
    assert runs[1].config.is_file()
    page.get_by_label("Its name").fill("two")
    page.get_by_role("button", name="Delete for good").click()
    until(page, "document.querySelectorAll('tbody tr').length === 1")
    assert not runs[1].path.exists()


def test_hostile_names_and_labels_are_text(tmp_path: Path, served: Served) -> None:
    texts = [text for text in hostile_texts() if len(text.encode(errors="replace")) <= 60]
    for number, text in enumerate(texts[:12]):
        safe = text.replace("/", "_").replace("\0", "_").encode("utf-8", "replace").decode().strip(". ") or "x"
        run = made_run(tmp_path / f"{number}{safe}", steps=1, env=text, model=text, rewards=[text])
        write_labels(run, Labels((text.encode("utf-8", "replace").decode(),), text.encode("utf-8", "replace").decode()))
    page = served(tmp_path, edit=True)
    until(page, "document.querySelectorAll('tbody tr').length === 12")
    assert page.evaluate("document.querySelectorAll('main script, main img, main iframe, main svg').length") == 0
    page.locator("tbody th a").first.click()
    page.wait_for_selector(".overview .chart")


def test_what_a_running_policy_writes_is_text_too(tmp_path: Path, served: Served) -> None:
    run = made_run(tmp_path / "pens", steps=1)
    page = served(tmp_path, "report?run=pens#rollouts?sort=-step")
    page.wait_for_selector(".detail .rollout")
    texts = hostile_texts()[:8]

    def hostile(number: int) -> RolloutRow:
        return replace(made_rollout(2, number // 4, number % 4, 1.0), completion=texts[number])

    write_rollouts(run, 2, [hostile(number) for number in range(8)])
    append_metrics(run, made_metrics(2, [hostile(number) for number in range(8)]))
    until(page, "document.querySelector('.count').textContent.startsWith('16 of 16')")
    for _ in range(8):
        page.keyboard.press("j")
        page.wait_for_timeout(30)
    assert page.evaluate("document.querySelectorAll('main script, main img, main iframe').length") == 0


@pytest.mark.parametrize("width", [400, 900, 1600])
def test_no_page_is_wider_than_the_window(tmp_path: Path, served: Served, width: int) -> None:
    run = made_run(tmp_path / "a-run-with-a-rather-long-name-of-its-own", steps=3)
    write_labels(run, Labels(("best", "to show"), "a note " * 20))
    page = served(tmp_path, edit=True, width=width)
    page.wait_for_selector("tbody tr")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.locator("tbody th a").first.click()
    page.wait_for_selector(".overview .chart")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_page_that_follows_a_run_speaks_of_no_file(tmp_path: Path, served: Served) -> None:
    made_run(tmp_path / "pens", steps=3)
    page = served(tmp_path, "report?run=pens")
    assert "24\nrecorded until now" in page.locator(".facts").inner_text()
    assert "file" not in page.locator("main").inner_text()
    assert page.title() == "pens · grpo watch"
    listed = served(tmp_path)
    listed.wait_for_selector("tbody th a")
    assert [text for text in listed.locator("tbody td").all_inner_texts() if text.endswith(" s")] == ["6 s"]
    assert "Started" in listed.locator("thead").inner_text()
