"""The page of `grpo report` in a real Chromium: what a reader finds, where links lead, what keys do."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from made_run import failed, made_run
from opened_page import until, until_at

from grpo.core.policy.embedded import embedded_model_path
from grpo.core.policy.load import load_tokenizer
from grpo.core.record.run_dir import RolloutRow, append_metrics
from grpo.core.record.trained import TrainedRow, write_trained
from grpo.core.report.report import write_report

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser
Opened = Callable[..., "Page"]
ROOM = 30_000_000


def with_a_failure(row: RolloutRow, number: int) -> RolloutRow:
    return failed(row, "ValueError: no number") if row.step == 2 and number == 5 else row


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    run = made_run(folder / "pens", steps=20, groups=4, change=with_a_failure)
    append_metrics(
        run, {"step": 20, "canaries/proximity/drift": 0.25, "held_out/problems": 12, "held_out/questions": 9}
    )
    return write_report([run.path], folder / "run.html", limit=ROOM).path


def detail(page: Page) -> Any:
    page.wait_for_selector(".detail .rollout")
    return page.locator(".detail .rollout")


def rows(page: Page) -> list[str]:
    page.wait_for_selector(".row .excerpt:not(:empty)")
    return [text.split("\n")[0] for text in page.locator(".row").all_inner_texts()]


def test_the_first_view_says_what_became_of_the_run_and_what_to_look_at(report: Path, opened: Opened) -> None:
    page = opened(report)
    assert page.title() == "pens · grpo report"
    assert page.locator("h1").inner_text() == "pens"
    facts = page.locator(".facts").inner_text()
    assert "40% → 90%" in facts
    assert "85% to 95%, 200 problems, 118 different" in facts
    assert "20 of 20" in facts
    alarms = page.locator(".alarms").inner_text()
    assert "reward 'proximity' failed on 1 rollout, first in step 2: ValueError: no number" in alarms
    assert "canaries of 'proximity': 25% drifted, 0% before" in alarms
    titles = page.locator(".chart .title").all_inner_texts()
    assert {"Reward", "Accuracy", "Length", "Entropy", "Failures", "Canaries of proximity"} <= set(titles)
    assert page.locator(".chart path.curve").count() >= len(titles)
    assert page.locator(".chart", has_text="Seconds of a step").locator(".legend li, .legend > *").count() == 2
    assert page.locator(".chart", has_text="Sampled tokens").count() == 1
    assert "abstentions" in page.locator(".note").last.inner_text()


def test_a_chart_says_its_values_at_the_cursor_zooms_with_all_others_and_leads_to_rollouts(
    report: Path, opened: Opened
) -> None:
    page = opened(report)
    plot = page.locator(".chart", has_text="Entropy").locator("svg.plot")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    assert box is not None
    middle = box["y"] + 80
    page.mouse.move(box["x"] + box["width"] * 0.5, middle)
    values = page.locator(".legend .value").all_inner_texts()
    assert sum(value != "" for value in values) >= 5, "every chart shows what it is worth there"
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.8, middle, steps=3)
    page.mouse.up()
    steps = page.locator(".chart", has_text="Length").locator(".steps text").first.all_text_contents()
    assert int(steps[0]) >= 9
    page.get_by_role("button", name="All steps").click()
    assert page.locator(".chart", has_text="Length").locator(".steps text").first.text_content() == "0"
    plot.click(position={"x": box["width"] * 0.5, "y": 80})
    until_at(page, "step=")
    assert len(rows(page)) >= 8


def test_no_two_marks_of_an_axis_look_alike_and_steps_are_whole(tmp_path: Path, opened: Opened) -> None:
    run = made_run(tmp_path / "pens", steps=10)
    for step in range(1, 11):
        append_metrics(
            run,
            {
                "step": step,
                "learning_rate": 5e-6 + 1e-6 * step,
                "time/rewards/proximity": 1e-4 + 1e-5 * step,
                "time/tokens_per_second": 10_200.0 + 10 * step,
            },
        )
    page = opened(write_report([run.path], tmp_path / "run.html", limit=ROOM).path)
    for title in ("Learning rate", "Seconds of rewards", "Sampled tokens"):
        chart = page.locator(".chart", has_text=title)
        marks = chart.locator(".grid text").all_text_contents()
        assert len({*marks}) == len(marks) >= 2, (title, marks)
        assert all(step.isdecimal() for step in chart.locator(".steps text").all_text_contents())


def test_an_alarm_leads_to_its_rollouts(report: Path, opened: Opened) -> None:
    page = opened(report)
    page.locator(".alarms li.failure a").click()
    assert rows(page) == ["step 2 · #5 · group 1"]
    assert "failed" in detail(page).locator(".outcomes").inner_text()
    assert "ValueError: no number" in detail(page).inner_text()


def test_a_reader_finds_the_best_completion_of_a_group_and_why_one_failed(report: Path, opened: Opened) -> None:
    page = opened(report, "#rollouts?step=20&group=3&sort=-reward")
    assert page.locator(".count").inner_text() == "4 of 16 rollouts"
    first = rows(page)[0]
    assert first.startswith("step 20 · #12 · group 3")
    assert "She has 6+7=13." in detail(page).inner_text()
    page = opened(report, "#rollouts?step=2&at=2.5")
    assert "ValueError: no number" in detail(page).locator(".outcomes").inner_text()


@pytest.mark.parametrize(
    ("fragment", "count"),
    [
        ("#rollouts", 320),
        ("#rollouts?step=3-5", 48),
        ("#rollouts?group=2", 80),
        ("#rollouts?failed=any", 1),
        ("#rollouts?failed=proximity", 1),
        ("#rollouts?failed=environment", 0),
        ("#rollouts?step=1&verdict=wrong", 12),
        ("#rollouts?step=1&verdict=right", 4),
        ("#rollouts?step=1&min=1", 4),
        ("#rollouts?step=1&max=0.25", 4),
        ("#rollouts?q=6%2B7%3D13&step=20", 4),
        ("#rollouts?q=NOTHING+LIKE+IT", 0),
    ],
)
def test_filters_of_a_link_choose_the_rollouts(report: Path, opened: Opened, fragment: str, count: int) -> None:
    page = opened(report, fragment)
    until(page, "document.querySelector('.count')?.textContent.includes(' of ')")
    until(page, "!document.querySelector('.count').textContent.includes('searched')")
    assert page.locator(".count").inner_text().split(" ")[0] == str(count)


def test_filters_are_set_by_hand_and_stand_in_the_address(report: Path, opened: Opened) -> None:
    page = opened(report, "#rollouts")
    page.get_by_label("Step, or steps as 1-20").fill("7")
    page.keyboard.press("Enter")
    until_at(page, "step=7")
    page.get_by_label("Step after").click()
    until_at(page, "step=8")
    page.get_by_label("Sort").select_option("reward")
    until_at(page, "step=8", "sort=reward")
    page.locator("summary", has_text="Filters").click()
    page.get_by_label("Verdict").select_option("wrong")
    until_at(page, "verdict=wrong")
    page.go_back()
    until_at(page, "step=8", "sort=reward")
    assert page.locator(".count").inner_text() == "16 of 16 rollouts"


def test_keys_move_through_the_list_search_and_open_what_belongs_to_a_rollout(report: Path, opened: Opened) -> None:
    page = opened(report, "#rollouts?step=4")
    heading = detail(page).locator("h2")
    for key, number in (("j", 1), ("j", 2), ("k", 1)):
        page.keyboard.press(key)
        until(page, f"document.querySelector('.detail h2').textContent.endsWith('#{number}')")
    assert heading.inner_text() == "Step 4 group 0 · #1"
    page.keyboard.press("g")
    page.wait_for_selector(".cards .card")
    assert page.locator(".card").count() == 4
    page.keyboard.press("g")
    page.wait_for_selector(".cards", state="detached")
    page.keyboard.press("d")
    page.wait_for_selector(".answer del")
    page.keyboard.press("/")
    until(page, "document.activeElement.id === 'search'")
    page.keyboard.type("3+4")
    page.keyboard.press("Enter")
    until_at(page, "q=3%2B4")
    page.locator(".list").focus()
    page.keyboard.press("?")
    assert page.locator("dialog[open]").count() == 1
    page.keyboard.press("Escape")
    page.keyboard.press("o")
    page.wait_for_selector(".facts")


def test_the_difference_to_another_completion_shows_what_each_has_alone(report: Path, opened: Opened) -> None:
    page = opened(report, "#rollouts?step=1&at=1.3&to=1.0")
    page.wait_for_selector(".answer del")
    assert page.locator(".answer pre del").all_inner_texts() == ["7", "7"]
    assert page.locator(".answer pre ins").all_inner_texts() == ["10", "10"]


def test_the_same_prompt_is_followed_through_time(report: Path, opened: Opened) -> None:
    page = opened(report, "#rollouts?step=1&at=1.0")
    lines = detail(page).locator(".through tbody tr")
    assert lines.count() == 20
    lines.nth(19).locator("a").click()
    until(page, "document.querySelector('.detail h2').textContent.startsWith('Step 20')")


def test_turns_and_what_they_were_told_stand_apart(tmp_path: Path, opened: Opened) -> None:
    messages = [
        {"role": "assistant", "content": "add(3, 4)"},
        {"role": "tool", "content": "7"},
        {"role": "assistant", "content": "Seven."},
        {"role": "user", "content": "Right."},
    ]
    info = json.dumps({"rewards": [0.0, 1.0], "tool_calls": 1, "terminated": True})

    def change(row: RolloutRow, _: int) -> RolloutRow:
        return replace(row, messages=json.dumps(messages), info=info)

    run = made_run(tmp_path / "run", change=change)
    page = opened(write_report([run.path], tmp_path / "run.html", limit=ROOM).path, "#rollouts")
    said = detail(page).locator(".answer .message")
    assert [text.split("\n")[0] for text in said.all_inner_texts()] == ["turn 1", "tool", "turn 2", "environment"]
    assert "reward 1" in said.nth(2).inner_text()
    assert page.get_by_role("button", name="as the model saw it").is_disabled()


def test_each_turn_says_what_it_earned_and_what_it_was_trained_with(tmp_path: Path, opened: Opened) -> None:
    messages = [{"role": "assistant", "content": "higher"}, {"role": "assistant", "content": "won"}]

    def change(row: RolloutRow, _: int) -> RolloutRow:
        return replace(row, messages=json.dumps(messages), turn_rewards=[0.0, 1.0], turn_advantages=[-0.25, 0.75])

    run = made_run(tmp_path / "run", change=change)
    page = opened(write_report([run.path], tmp_path / "run.html", limit=ROOM).path, "#rollouts")
    detail(page)
    notes = page.locator(".answer .turn-reward")
    assert notes.all_inner_texts() == ["reward 0", "advantage \u22120.25", "reward 1", "advantage +0.75"]
    assert notes.locator("b.down").all_inner_texts() == ["\u22120.25"]


def test_tokens_are_coloured_by_how_probable_they_were(tmp_path: Path, opened: Opened) -> None:
    tokenizer = load_tokenizer(str(embedded_model_path()))

    def change(row: RolloutRow, _: int) -> RolloutRow:
        ids = tokenizer(row.completion, add_special_tokens=False)["input_ids"]
        return replace(row, token_ids=ids, logprobs=[-0.001 if at else -4.0 for at in range(len(ids))])

    run = made_run(tmp_path / "run", change=change)
    shutil.copytree(embedded_model_path(), run.model, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    page = opened(write_report([run.path], tmp_path / "run.html", limit=ROOM).path, "#rollouts?at=1.0")
    detail(page)
    page.keyboard.press("t")
    tokens = page.locator(".tokens span")
    tokens.first.wait_for()
    assert "".join(tokens.all_text_contents()) == "She has 3+4=7.\n#### 7"
    assert tokens.first.get_attribute("title") == "log-probability \u22124, probability 1.8%"
    shades = [tokens.nth(at).evaluate("node => node.style.backgroundColor") for at in (0, 1)]
    assert shades == [
        "color-mix(in srgb, var(--c1) 64%, transparent)",
        "color-mix(in srgb, var(--c1) 0%, transparent)",
    ]
    page.keyboard.press("t")  # it was not trained on, so there is nothing else to colour by
    page.wait_for_selector(".tokens", state="detached")
    page.get_by_role("button", name="as the model saw it").click()
    seen = page.locator(".seen").inner_text()
    assert "Ann has 3 pens" in seen
    assert "<|im_start|>" in seen


def test_tokens_are_coloured_by_what_they_were_trained_with(tmp_path: Path, opened: Opened) -> None:
    tokenizer = load_tokenizer(str(embedded_model_path()))

    def change(row: RolloutRow, _: int) -> RolloutRow:
        ids = tokenizer(row.completion, add_special_tokens=False)["input_ids"]
        return replace(row, token_ids=ids, logprobs=[-1.0] * len(ids))

    run = made_run(tmp_path / "run", change=change)
    shutil.copytree(embedded_model_path(), run.model, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    count = len(tokenizer("She has 3+4=7.\n#### 7", add_special_tokens=False)["input_ids"])
    apart, worth = [math.log(2), -math.log(4), *[0.0] * (count - 2)], [1.0, -0.5, *[0.0] * (count - 2)]
    write_trained(run, 1, [TrainedRow(0, apart, worth)])
    page = opened(write_report([run.path], tmp_path / "run.html", limit=ROOM).path, "#rollouts?at=1.0")
    detail(page)
    page.get_by_label("Tokens by").select_option("ratio")
    until_at(page, "by=ratio")
    page.locator(".tokens span").first.wait_for()

    def told() -> list[tuple[str | None, str]]:
        own = [page.locator(".tokens span").nth(at) for at in range(3)]
        return [(one.get_attribute("title"), one.evaluate("node => node.style.backgroundColor")) for one in own]

    shade = "color-mix(in srgb, var(--c{}) {}%, transparent)".format
    said = "{} times as probable to the policy that trained".format
    assert told() == [(said("2"), shade(2, 75)), (said("0.25"), shade(1, 75)), (said("1"), "")]
    page.keyboard.press("t")
    until_at(page, "by=advantage")
    until(page, "document.querySelector('.tokens span').title.startsWith('advantage')")
    assert told() == [("advantage +1", shade(2, 38)), ("advantage \u22120.5", shade(1, 19)), ("advantage 0", "")]
    page.keyboard.press("j")  # a rollout that was not trained on is shown as it is
    until(page, "document.querySelector('.detail h2').textContent.endsWith('#1')")
    assert page.locator(".tokens").count() == 0
    assert page.get_by_label("Tokens by").locator("option").all_inner_texts() == ["\u2013", "log-probability"]


@pytest.mark.slow
def test_other_rewards_stand_beside_the_recorded_ones(tmp_path: Path, opened: Opened) -> None:
    def change(row: RolloutRow, number: int) -> RolloutRow:
        return replace(row, reward=float(number % 4), outcomes={"proximity": ("score", float(number % 4), None)})

    run = made_run(tmp_path / "run", change=change)
    file = write_report([run.path], tmp_path / "run.html", limit=ROOM, new=["text_match"]).path
    page = opened(file)
    told = page.locator("section", has_text="With text_match").locator(".prose")
    assert "turns round" in told.inner_text()
    told.get_by_role("link").first.click()
    until_at(page, "flipped=1", "sort=-shift")
    detail(page)
    assert 0 < int(page.locator(".count").inner_text().split(" ")[0]) < 24
    assert "now" in page.locator(".row").first.inner_text()


def test_several_runs_are_laid_over_each_other_and_their_settings_compared(tmp_path: Path, opened: Opened) -> None:
    train = {"steps": 3, "dtype": "float32", "lr": 1e-06}
    runs = [made_run(tmp_path / "one").path, made_run(tmp_path / "two", train=train).path]
    page = opened(write_report(runs, tmp_path / "runs.html", limit=ROOM).path)
    assert page.locator(".runs tbody tr").count() == 2
    chart = page.locator(".chart", has_text="Entropy")
    assert page.locator(".run-key li").all_inner_texts() == ["one", "two"]
    assert [key.get_attribute("title") for key in chart.locator(".key").all()] == ["one", "two"]
    page.get_by_role("link", name="Settings").click()
    table = page.locator("table.values").first
    table.locator("tbody tr").first.wait_for()
    assert table.locator("tbody tr").all_inner_texts() == ["train.lr\t0.00003\t0.000001"]
    page.get_by_label("only what differs").uncheck()
    page.wait_for_selector("text=train.dtype")
    page = opened(tmp_path / "runs.html", "#rollouts?run=1&step=2")
    assert len(rows(page)) == 8


@pytest.mark.parametrize("width", [400, 900, 1600])
@pytest.mark.parametrize(
    "fragment", ["", "#rollouts", "#rollouts?step=3&at=3.1", "#rollouts?at=3.1&view=group", "#settings"]
)
def test_no_view_is_wider_than_the_window(report: Path, opened: Opened, width: int, fragment: str) -> None:
    page = opened(report, fragment, width=width)
    page.wait_for_timeout(150)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_on_a_narrow_window_the_list_leads_to_a_rollout_and_back(report: Path, opened: Opened) -> None:
    page = opened(report, "#rollouts?step=3", width=400)
    page.wait_for_selector(".row")
    assert not page.locator(".detail").is_visible()
    page.locator(".row").nth(1).click()
    page.wait_for_selector(".detail .rollout", state="visible")
    assert not page.locator(".list").is_visible()
    page.get_by_role("button", name="List").click()
    page.wait_for_selector(".list", state="visible")


def test_a_run_without_rollouts_has_a_page_that_says_so(tmp_path: Path, opened: Opened) -> None:
    file = write_report([made_run(tmp_path / "run", steps=0).path], tmp_path / "run.html", limit=ROOM).path
    page = opened(file, "#rollouts")
    assert page.locator(".count").inner_text() == "0 of 0 rollouts"
