"""The page of `grpo report`, and that of `grpo watch`, in a real Firefox."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from firefox import Firefox
from hostile_texts import hostile_texts
from made_run import made_metrics, made_rollout, made_run

from grpo.core.record.run_dir import RolloutRow, append_metrics, write_rollouts
from grpo.core.report.report import write_report
from grpo.core.watch.folder import WatchedFolder
from grpo.core.watch.server import WatchServer

pytestmark = pytest.mark.browser
ROOM = 10_000_000


def test_a_report_is_whole_from_a_file_and_reaches_for_nothing(tmp_path: Path, firefox: Firefox) -> None:
    run = made_run(tmp_path / "pens", steps=20)
    url = write_report([run.path], tmp_path / "run.html", limit=ROOM).path.as_uri()
    firefox.open(url)
    firefox.until("document.querySelectorAll('.chart svg path, .chart svg polyline').length > 3")
    assert firefox.value("document.querySelector('h1').innerText") == "pens"
    firefox.press("r")
    firefox.until("document.querySelector('.detail .rollout')")
    assert firefox.value("document.querySelector('.count').innerText") == "160 of 160 rollouts"
    firefox.open(f"{url}#rollouts?at=12.3&view=group")
    firefox.until("document.querySelectorAll('.detail .quoted').length >= 4")
    firefox.press("g")
    firefox.until("document.querySelector('.detail h2').innerText.includes('group 0')")
    firefox.press("j")
    firefox.until("location.hash.includes('at=12.4')")
    firefox.press("/")
    firefox.until("document.activeElement.id === 'search'")
    for key in "4+5":
        firefox.press(key)
    firefox.press("\ue007")  # Enter
    firefox.until("/^\\d+ of 160/.test(document.querySelector('.count').innerText)")
    firefox.until("Number(document.querySelector('.count').innerText.split(' ')[0]) < 160")
    assert {asked.partition("#")[0] for asked in firefox.asked if not asked.startswith("data:")} <= {url}
    assert firefox.said == []


def test_hostile_texts_are_inert(tmp_path: Path, firefox: Firefox) -> None:
    texts = hostile_texts()

    def change(row: RolloutRow, number: int) -> RolloutRow:
        text = texts[(8 * row.step + number) % len(texts)]
        return replace(row, completion=text, messages=json.dumps([{"role": "assistant", "content": text}] * 2))

    run = made_run(tmp_path / "pens", steps=len(texts) // 8 + 1, change=change)
    url = write_report([run.path], tmp_path / "run.html", limit=ROOM).path.as_uri()
    firefox.open(f"{url}#rollouts")
    firefox.until("document.querySelector('.detail .rollout')")
    kinds = "[...new Set([...document.querySelectorAll('#page *')].map((one) => one.tagName))]"
    before = firefox.value("Object.keys(window).length")
    for step in range(1, len(texts) // 8 + 2):
        firefox.open(f"{url}#rollouts?at={step}.0&view=group")
        firefox.until("document.querySelectorAll('.detail .quoted').length >= 4")
        assert not {"SCRIPT", "IMG", "IFRAME", "OBJECT", "EMBED", "LINK"} & {*firefox.value(kinds)}
    assert firefox.value("Object.keys(window).length") == before
    assert {asked.partition("#")[0] for asked in firefox.asked if not asked.startswith("data:")} <= {url}
    assert firefox.said == []


def test_a_page_that_is_watched_follows_its_run(tmp_path: Path, firefox: Firefox) -> None:
    run = made_run(tmp_path / "pens", steps=3)
    server = WatchServer(WatchedFolder(tmp_path), 0)
    server.start()
    try:
        firefox.open(f"{server.link}report?run=pens#rollouts?at=2.1")
        firefox.until("document.querySelector('.detail .rollout')")
        rows = [made_rollout(4, number // 4, number % 4, 1.0) for number in range(8)]
        write_rollouts(run, 4, rows)
        append_metrics(run, made_metrics(4, rows))
        firefox.until("document.querySelector('.count').innerText === '32 of 32 rollouts'")
        assert "Step 2" in firefox.value("document.querySelector('.detail h2').innerText")
        assert sum(asked.startswith(server.link) for asked in firefox.asked) > 3
        assert all(asked.startswith((server.link, "data:")) for asked in firefox.asked)
        assert firefox.said == []
    finally:
        firefox.open("about:blank")
        server.stop()
