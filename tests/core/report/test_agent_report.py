"""Episodes of agents in the report: what the page holds of them, and how a real Chromium shows them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from agent_run import agent_run, episode, recorded
from hostile_texts import hostile_texts
from made_run import made_rollout, made_run
from opened_page import until

from grpo.core.report.blocks import split_info
from grpo.core.report.public import public_row
from grpo.core.report.report import write_report

if TYPE_CHECKING:
    from playwright.sync_api import Page

Opened = Callable[..., "Page"]
ROOM = 30_000_000


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    return write_report([agent_run(folder / "agents").path], folder / "run.html", limit=ROOM).path


def test_the_page_has_calls_without_token_ids_and_the_rest_of_the_info() -> None:
    row = recorded(made_rollout(1, 0, 0, 1.0), episode())
    found, rest = split_info(row.info)
    assert found is not None
    assert [call["depth"] for call in found["tree"]] == [0, 0, 0, 1, 0, 0, 0]
    assert not any(call["new_ids"] or call["ids"] for call in found["tree"])
    assert found["files"] == {"a.txt": "4\n", "b.txt": None}
    assert rest == "{}"


@pytest.mark.parametrize("info", [None, "", "{", '{"agent": 3}', '["agent"]', '{"agent": {"tree": [7]}}'])
def test_what_is_no_episode_stays_as_it_is(info: str | None) -> None:
    assert split_info(info) == (None, info)


def test_what_an_agent_printed_is_public_without_folders() -> None:
    row = recorded(made_rollout(1, 0, 0, 1.0), episode())
    info = json.loads(row.info or "")
    info["agent"]["stderr"] = "no file /home/ann/work/key.txt"
    shown = json.loads(public_row({"info": json.dumps(info)})["info"])
    assert shown["agent"]["stderr"] == "no file key.txt"
    assert shown["agent"]["tree"] == info["agent"]["tree"]


@pytest.mark.browser
def test_an_episode_is_its_calls_and_long_results_are_folded(report: Path, opened: Opened) -> None:
    page = opened(report, "#rollouts?step=1&at=1.0")
    page.wait_for_selector(".episode")
    heads = page.locator(".call-head").all_inner_texts()
    assert [" ".join(head.split())[:30] for head in heads][:4] == [
        "Call 0 begins: the first does ",
        "Call 1 begins: other tools tra",
        "Call 2 continues call 1 trains",
        "Call 3 continues call 1 trains",
    ]
    assert page.locator(".agent-call.branch").count() == 1
    assert page.locator(".agent-call .mark.good").count() == 5
    assert page.locator(".agent-call", has_text="not delivered").count() == 1
    assert 'bash(command="wc -l a.txt")' in page.locator(".agent-call").nth(1).inner_text()
    folded = page.locator(".message.tool details.folded")
    assert folded.count() == 1
    assert not folded.locator("pre").is_visible()
    folded.locator("summary").click()
    assert folded.locator("pre").is_visible()
    assert "b.txt deleted" in page.locator(".episode").inner_text()
    assert "as the model saw it" not in page.locator(".detail").inner_text()


@pytest.mark.browser
def test_a_search_opens_the_folded_result_that_it_finds(report: Path, opened: Opened) -> None:
    page = opened(report, "#rollouts?step=1&at=1.0&q=more")
    page.wait_for_selector(".episode")
    until(page, "document.querySelector('.message.tool details.folded')?.open === true")


@pytest.mark.browser
def test_tokens_are_coloured_in_the_calls_that_sampled_them(report: Path, opened: Opened) -> None:
    page = opened(report, "#rollouts?step=1&at=1.0")
    page.wait_for_selector(".episode")
    if page.locator(".colouring").count():  # with a tokenizer
        page.locator(".colouring select").select_option("token")
        page.wait_for_selector(".agent-call .tokens")
        assert page.locator(".agent-call .tokens").count() == 5


@pytest.mark.browser
def test_a_failed_episode_shows_why_its_program_ended(report: Path, opened: Opened) -> None:
    page = opened(report, "#rollouts?step=1&at=1.3")
    page.wait_for_selector(".episode")
    text = page.locator(".episode").inner_text()
    assert "The agent ended with exit status 1." in text
    assert "FileNotFoundError: settings.json" in text


@pytest.mark.browser
@pytest.mark.parametrize("width", [400, 1400])
def test_nothing_of_an_episode_runs_over_the_edge(report: Path, opened: Opened, width: int) -> None:
    folder = Path(os.environ.get("GRPO_SCREENSHOTS", Path(__file__).parents[3] / "build" / "screenshots"))
    folder.mkdir(parents=True, exist_ok=True)
    for scheme in ("light", "dark"):
        page = opened(report, "#rollouts?step=1&at=1.0", width=width, height=1500, color_scheme=scheme)
        page.wait_for_selector(".episode")
        page.screenshot(path=folder / f"episode-{width}-{scheme}.png")
        assert page.evaluate("() => document.documentElement.scrollWidth") <= width


@pytest.mark.browser
def test_hostile_texts_of_an_episode_are_texts(tmp_path: Path, opened: Opened) -> None:
    texts = hostile_texts()
    info = json.loads(recorded(made_rollout(1, 0, 0, 1.0), episode()).info or "")
    agent = info["agent"]
    for call in agent["tree"]:
        call["new"] = [{"role": text[:40], "text": text} for text in texts]
        call["said"] = {
            "role": "assistant",
            "text": texts[0],
            "calls": [{"name": text, "arguments": {text: text}} for text in texts],
        }
        call["root"] = call["root"] and texts[3]
        call["ignored"] = texts[:5]
    agent |= {"refused": texts, "stderr": "\n".join(texts), "exit": 1}
    info["files"] = {text: text for text in texts}
    run = made_run(
        tmp_path / "run", steps=1, groups=1, members=1, change=lambda row, _: replace(row, info=json.dumps(info))
    )
    page = opened(write_report([run.path], tmp_path / "run.html", limit=ROOM).path, "#rollouts?step=1&at=1.0")
    page.wait_for_selector(".episode")
    assert page.locator(".episode :is(script, img, svg, iframe, object, embed, form, a, style, link)").count() == 0
